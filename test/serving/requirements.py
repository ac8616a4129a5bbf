"""Print what a wheel of vLLM depends on, without what the environment has otherwise: `requirements.py WHEEL`."""

import re
import sys
import zipfile
from email import message_from_bytes

OTHERWISE = {"setuptools", "torch", "transformers", "xgrammar"}

with zipfile.ZipFile(sys.argv[1]) as wheel:
    metadata = message_from_bytes(wheel.read(next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))))
for requirement in metadata.get_all("Requires-Dist", []):
    if "extra ==" not in requirement and re.split(r"[^\w.-]", requirement)[0].lower() not in OTHERWISE:
        print(requirement)
