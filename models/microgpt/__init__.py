"""microgpt: a GPT-2-like character model, trained one document a step.

    model.py       the weights and the functions of one document, up to the loss
    train.py       gradient, Adam, the training loop, sampling
    data.py        where documents come from, and how they become tokens
    checkpoint.py  saving and loading
    cli.py         the command line: python models/microgpt/train.py --help
"""
