"""Small pictures of 24 by 16 pixels, all of one red, of kinds that Pillow opens and of kinds that it does not."""

from __future__ import annotations

import base64
import io

from PIL import Image

COLOUR = (200, 30, 60)
SIZE = (24, 16)

HEIF = base64.b64decode(
    "AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAXxtZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAAAAAAAAAAACJpbG9j"
    "AAAAAERAAAEAAQAAAAABoAABAAAAAAAAADMAAAAjaWluZgAAAAAAAQAAABVpbmZlAgAAAAABAABodmMxAAAAAA5waXRtAAAAAAABAAAA/Glw"
    "cnAAAADcaXBjbwAAAHVodmNDAQNwAAAAkAAAAAAAHvAA/P34+AAADwNgAAEAGEABDAH//wNwAAADAJAAAAMAAAMAHroCQGEAAQApQgEBA3AA"
    "AAMAkAAAAwAAAwAeoCCBBZbqrprm4CGgwIAAAAyAAAADAIRiAAEABkQBwXPBiQAAABNjb2xybmNseAABAA0ABoAAAAAUaXNwZQAAAAAAAABA"
    "AAAAQAAAAChjbGFwAAAAGAAAAAEAAAAQAAAAAf///9gAAAAC////0AAAAAIAAAAQcGl4aQAAAAADCAgIAAAAGGlwbWEAAAAAAAAAAQABBYEC"
    "AwWEAAAAO21kYXQAAAAvKAGvEyFkY0D4EPdn/+jJt/qXU/7T7HpzshHQwNIggJtASJNdUAsWEICHdqVW3Pg="
)
JXL = base64.b64decode("/woDBwATiAIA2AC1nyAAABUqo4wbvJzr+fJDh8W0jesMbbVtYQljs70wSEg4Q+ZNBffmaQBHHVACMgxlYF5RSQI=")
AVIF = base64.b64decode(
    "AAAAIGZ0eXBhdmlmAAAAAGF2aWZtaWYxbWlhZk1BMUIAAADrbWV0YQAAAAAAAAAhaGRscgAAAAAAAAAAcGljdAAAAAAAAAAAAAAAAAAAAAAO"
    "cGl0bQAAAAAAAQAAAB5pbG9jAAAAAEQAAAEAAQAAAAEAAAETAAAAKQAAAChpaW5mAAAAAAABAAAAGmluZmUCAAAAAAEAAGF2MDFDb2xvcgAA"
    "AABqaXBycAAAAEtpcGNvAAAAFGlzcGUAAAAAAAAAGAAAABAAAAAQcGl4aQAAAAADCAgIAAAADGF2MUOBAAwAAAAAE2NvbHJuY2x4AAEADQAG"
    "gAAAABdpcG1hAAAAAAAAAAEAAQQBAoMEAAAAMW1kYXQSAAoJGBDv7RAQ0GhAMhoUx4eGZQIIIJ5QAAAAV98R8d8vdIRj8CyPzA=="
)
SVG = (
    b'<?xml version="1.0"?><!-- drawn by hand --><svg xmlns="http://www.w3.org/2000/svg" width="24" height="16">'
    b'<rect width="24" height="16" fill="rgb(200,30,60)"/></svg>'
)


def picture(kind: str) -> bytes:
    """The picture in a format that Pillow writes."""
    out = io.BytesIO()
    Image.new("RGB", SIZE, COLOUR).save(out, kind)
    return out.getvalue()


def is_the_picture(content: bytes) -> bool:
    """Whether Pillow opens it and sees what was drawn, as nearly as lossy formats keep it."""
    with Image.open(io.BytesIO(content)) as found:
        pixel = found.convert("RGB").getpixel((12, 8))
        assert isinstance(pixel, tuple)
        return found.size == SIZE and all(abs(a - b) <= 8 for a, b in zip(pixel, COLOUR, strict=True))
