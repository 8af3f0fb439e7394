"""Loading data without the interpreter lock: channels, and a loader whose threads run compiled transforms.

    channel.py      Channel: a queue with an end, back-pressure and errors; select
    kernels.py      crop, flip, jitter, normalise and cut out in one pass over an image; random numbers by counter
    sources.py      where samples come from: arrays, CIFAR-10 files, folders of images
    loader.py       Loader: batches in order, the same for any number of workers, resumable by three integers
"""
from parray.data.channel import Channel, Closed, select
from parray.data.kernels import Crop, Cutout, Flip, Jitter, Normalise
from parray.data.loader import Batch, Loader
from parray.data.sources import Arrays, Folder, Source, cifar10

__all__ = ["Arrays", "Batch", "Channel", "Closed", "Crop", "Cutout", "Flip", "Folder", "Jitter", "Loader", "Normalise",
           "Source", "cifar10", "select"]
