# One figure, two panels: labels in Chinese and Arabic, values below zero.
import matplotlib.pyplot as plt

bars = own_script.iloc[::-1]
lats = continents["mean_lat"].sort_values()
fig, (left, right) = plt.subplots(1, 2, figsize=(10.5, 5.2), width_ratios=(1.25, 1), layout="constrained")

left.barh(bars["city"] + "  " + bars["local_name"], bars["people"] / 1e6, color="#177e89", height=0.68)
for y, people in enumerate(bars["people"] / 1e6):
    left.text(people + 0.3, y, f"{people:.1f}", va="center", fontsize=10, color="#0f3d4c")
left.set_title("各国最大城市的人口\nأكبر مدينة في كل بلد", fontsize=13, pad=12)
left.set_xlabel("百万人 · مليون نسمة · millions of people")
left.set_xlim(0, bars["people"].max() / 1e6 * 1.1)

right.barh(lats.index, lats, color=["#c8553d" if value < 0 else "#e08e45" for value in lats], height=0.62)
for y, value in enumerate(lats):
    text = f"{value:+.1f}°".replace("-", "\N{MINUS SIGN}")
    right.text(value + (1 if value > 0 else -1), y, text, va="center", ha="left" if value > 0 else "right")
right.axvline(0, color="#0f3d4c", linewidth=0.9)
right.set_title("城市居民的平均纬度\nمتوسط خط العرض", fontsize=13, pad=12)
right.set_xlabel("度 · درجة · degrees of latitude")
right.set_xlim(-58, 72)

for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#d3dee1", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0, labelsize=11)
fig.savefig("/workspace/outputs/chart.png", dpi=200)
print("chart.png,", len(bars), "cities,", len(lats), "continents")
