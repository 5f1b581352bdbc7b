# The photo as a speaker card: crop, resize, annotate; and a small square portrait.
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, ImageOps

photo = ImageOps.exif_transpose(Image.open("/workspace/uploads/grace_hopper.jpg")).convert("RGB")
square = photo.crop((96, 20, 416, 340)).resize((400, 400), Image.Resampling.LANCZOS)
square.save("/workspace/outputs/portrait.jpg", quality=90)


def font(pattern, size, index=0):
    found = sorted(Path("/usr/share/fonts").rglob(pattern))
    return ImageFont.truetype(str(found[0]), size, index=index)


card = Image.new("RGB", (1200, 675), "#0f3d4c")
card.paste(ImageOps.fit(photo, (520, 675), Image.Resampling.LANCZOS, centering=(0.5, 0.3)), (0, 0))
draw = ImageDraw.Draw(card)
draw.rectangle((520, 0, 528, 675), fill="#e08e45")
draw.text((580, 150), "Grace Hopper", font=font("Carlito-Bold.ttf", 76), fill="white")
regular = font("Carlito-Regular.ttf", 34)
draw.text((582, 245), "Rear admiral and computer scientist", font=regular, fill="#c9e0e2")
draw.text((582, 330), "格蕾丝·霍珀", font=font("NotoSansCJK-Regular.ttc", 44, index=2), fill="white")
naskh = font("NotoNaskhArabic-Regular.ttf", 50)
draw.text((582, 420), "غريس هوبر", font=naskh, fill="white")
draw.text((582, 570), "1906 – 1992", font=regular, fill="#e08e45")
card.save("/workspace/outputs/card.png")
card.resize((600, 338), Image.Resampling.LANCZOS)
