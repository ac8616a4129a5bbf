"""Every test here is of tensors on the device."""

from ktir.device.autoload import register

register()
