# One figure, two panels: labels in Chinese and Arabic, values below zero.
import matplotlib.pyplot as plt

bars = own_script.iloc[::-1]
lats = continents["mean_lat"].sort_values()
fig, (left, right) = plt.subplots(1, 2, figsize=(10.5, 5.2), width_ratios=(1.25, 1), layout="constrained")
fig.get_layout_engine().set(w_pad=0.12, h_pad=0.08)

left.barh(bars["city"] + "  " + bars["local_name"], bars["people"] / 1e6, color="#177e89", height=0.68)
for y, people in enumerate(bars["people"] / 1e6):
    left.text(people + 0.3, y, f"{people:.1f}", va="center", fontsize=10, color="#0f3d4c")
left.set_xlabel("百万人 · مليون نسمة · millions of people")
left.set_xlim(0, bars["people"].max() / 1e6 * 1.18)

right.barh(lats.index, lats, color=["#c8553d" if value < 0 else "#e08e45" for value in lats], height=0.62)
for y, value in enumerate(lats):
    text = f"{value:+.1f}°".replace("-", "\N{MINUS SIGN}")
    right.text(value + (1 if value > 0 else -1), y, text, va="center", fontsize=10,
               ha="left" if value > 0 else "right", color="#0f3d4c")
right.axvline(0, color="#0f3d4c", linewidth=0.9)
right.set_xlabel("度 · درجة · degrees of latitude")
right.set_xlim(-70, 86)

titles = {left: ("十座城市的人口与当地名称", "سكان عشر مدن وأسماؤها المحلية"),
          right: ("城市居民的平均纬度", "متوسط خط عرض سكان المدن")}
for axes, (chinese, arabic) in titles.items():
    axes.set_title(arabic, fontsize=13, pad=14)
    axes.text(0.5, 1.105, chinese, transform=axes.transAxes, ha="center", fontsize=13)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#d3dee1", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0, labelsize=11)
fig.savefig("/workspace/outputs/chart.png", dpi=200)
print("chart.png,", len(bars), "cities,", len(lats), "continents")
