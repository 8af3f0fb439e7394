"""Black-Scholes: prices of options, and their sensitivities ("Greeks") as derivatives of the price itself.

    python examples/black_scholes.py --options 100000
"""
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Sequence

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import parray as pa  # noqa: E402
from examples.common import figure, options  # noqa: E402
from parray import f64, parallel  # noqa: E402


class Market(pa.Record):
    """One option, or a column of each for many: prices now and agreed, years left, volatility, interest."""
    spot: f64["n"]
    strike: f64["n"]
    years: f64["n"]
    volatility: f64["n"]
    rate: f64["n"]


def normal_cdf(x: f64) -> f64:
    """The share of a normal distribution below x."""
    return 0.5 * pa.erfc(-x / 2 ** 0.5)


def call(m: Market) -> f64:
    """The price of the right to buy."""
    spread = m.volatility * pa.sqrt(m.years)
    d1 = (pa.log(m.spot / m.strike) + (m.rate + m.volatility ** 2 / 2) * m.years) / spread
    return m.spot * normal_cdf(d1) - m.strike * pa.exp(-m.rate * m.years) * normal_cdf(d1 - spread)


def put(m: Market) -> f64:
    """The price of the right to sell, by parity."""
    return call(m) - m.spot + m.strike * pa.exp(-m.rate * m.years)


@parallel
def prices(m: Market) -> tuple[f64["n"], f64["n"]]:
    """Calls and puts."""
    return pa.map(lambda o: (call(o), put(o)), m)


@parallel
def greeks(m: Market) -> Market:
    """How each call's price changes with each of its inputs: delta, .., vega, rho, as a record of the same form."""
    return pa.map(pa.grad(call), m)


@parallel
def gamma(m: Market) -> f64["n"]:
    """The second derivative in the spot price."""
    def second(o: Any) -> Any:
        delta = pa.grad(lambda s: call(o._replace(spot=s)))
        return pa.grad(delta)(o.spot)
    return pa.map(second, m)


def market(n: int, seed: int = 0) -> Market:
    """Options of many kinds."""
    rng = np.random.default_rng(seed)
    return Market(rng.uniform(50, 150, n), rng.uniform(50, 150, n), rng.uniform(0.1, 2, n), rng.uniform(0.1, 0.5, n),
                  rng.uniform(0, 0.05, n))


def main(argv: Sequence[str] | None = None) -> Any:
    """Price a book of options."""
    args = options(__doc__, argv, options=100_000)
    book = market(args.options)
    calls, puts = prices(book)
    found = greeks(book)
    print(f"calls cost {calls.mean():.3f}, puts {puts.mean():.3f} on average; "
          f"deltas lie in {found.spot.min():.3f}..{found.spot.max():.3f}")
    if args.plot:
        figure(args.plot, lambda ax: ax.scatter(book.spot / book.strike, found.spot, s=1))
    return calls, puts, found


if __name__ == "__main__":
    main()
