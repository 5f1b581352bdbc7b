# The photo as a speaker card: crop, resize, annotate; and a small square portrait.
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, ImageOps

photo = ImageOps.exif_transpose(Image.open("/workspace/uploads/grace_hopper.jpg")).convert("RGB")
square = photo.crop((53, 5, 473, 425)).resize((400, 400), Image.Resampling.LANCZOS)
square.save("/workspace/outputs/portrait.jpg", quality=90)


def font(pattern, size, index=0):
    found = sorted(Path("/usr/share/fonts").rglob(pattern))
    return ImageFont.truetype(str(found[0]), size, index=index)


card = Image.new("RGB", (1200, 675), "#0f3d4c")
card.paste(ImageOps.fit(photo, (520, 675), Image.Resampling.LANCZOS, centering=(0.5, 0.3)), (0, 0))
draw = ImageDraw.Draw(card)
draw.rectangle((520, 0, 528, 675), fill="#e08e45")
regular = font("Carlito-Regular.ttf", 34)
lines = [("Grace Hopper", font("Carlito-Bold.ttf", 76), "white"),
         ("Rear admiral and computer scientist", regular, "#c9e0e2"),
         ("格蕾丝·霍珀", font("NotoSansCJK-Regular.ttc", 44, index=2), "white"),
         ("غريس هوبر", font("NotoNaskhArabic-Regular.ttf", 50), "white"),
         ("1906 – 1992", regular, "#e08e45")]
boxes = [draw.textbbox((0, 0), text, font=face) for text, face, _ in lines]  # what is inked of each line
gap = 40
y = (675 - sum(box[3] - box[1] for box in boxes) - gap * (len(lines) - 1)) / 2
for (text, face, color), (left, top, _, bottom) in zip(lines, boxes, strict=True):
    draw.text((582 - left, y - top), text, font=face, fill=color)
    y += bottom - top + gap
card.save("/workspace/outputs/card.png")
card.resize((600, 338), Image.Resampling.LANCZOS)
