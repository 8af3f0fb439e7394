"""Layers, losses, initial weights and optimizers for neural networks, written in the language itself.

    layers.py       linear, convolution, normalisation, pooling, attention, recurrence
    losses.py       cross-entropy, mean squared error
    init.py         random initial weights
    optim.py        SGD, Adam, AdamW; clipping; schedules of the learning rate

Every layer is a function of its input and its weights, a few lines of combinators; there is no module object and no
hidden state.  What training changes besides the weights (running statistics, moments) goes in and comes out as records.
Images are [batch, channels, rows, columns].
"""
from parray.nn.init import gauss, kaiming, xavier
from parray.nn.layers import (BatchNorm, attention, avg_pool2d, batch_norm, conv2d, dropout, embedding, global_avg_pool,
                              layer_norm, linear, lstm, max_pool2d, pad2d, rms_norm)
from parray.nn.losses import accuracy, cross_entropy, mse
from parray.nn.optim import Adam, Sgd, adam, adamw, clip_by_norm, cosine, one_cycle, sgd, start_adam, start_sgd, steps
from parray.prelude import gelu, relu, sigmoid, silu, softmax
from parray.trace.functions import tanh

__all__ = ["Adam", "BatchNorm", "Sgd", "accuracy", "adam", "adamw", "attention", "avg_pool2d", "batch_norm",
           "clip_by_norm", "conv2d", "cosine", "cross_entropy", "dropout", "embedding", "gauss", "gelu",
           "global_avg_pool", "kaiming", "layer_norm", "linear", "lstm", "max_pool2d", "mse", "one_cycle", "pad2d",
           "relu", "rms_norm", "sgd", "sigmoid", "silu", "softmax", "start_adam", "start_sgd", "steps", "tanh",
           "xavier"]
