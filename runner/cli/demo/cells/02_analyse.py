# Clean the table, group it, and keep a small summary both in variables and in a file.
import json

df.columns = ["id", "city", "local_name", "country", "continent", "people", "lat", "lon", "zone"]
english = {"Afrika": "Africa", "Asien": "Asia", "Europa": "Europe", "Nordamerika": "North America",
           "Ozeanien": "Oceania", "Südamerika": "South America"}
df["continent"] = df["continent"].map(english)
cities = df.drop_duplicates("id").sort_values("people", ascending=False, ignore_index=True)
assert cities["continent"].notna().all() and cities["lat"].between(-90, 90).all()

cities.drop(columns="id").to_csv("/workspace/outputs/cities.csv", index=False)

cities["lat_people"] = cities["lat"] * cities["people"]
continents = cities.groupby("continent").agg(
    cities=("id", "size"), people=("people", "sum"), lat_people=("lat_people", "sum"),
    largest=("city", "first"), millions=("people", lambda s: int((s >= 1_000_000).sum())))
continents["share"] = continents["people"] / continents["people"].sum()
continents["mean_lat"] = (continents.pop("lat_people") / continents["people"]).round(1)
continents = continents.sort_values("people", ascending=False)

countries = cities.groupby(["country", "continent"]).agg(
    cities=("id", "size"), people=("people", "sum"), largest=("city", "first")
).sort_values("people", ascending=False).reset_index()

own_script = cities.dropna(subset="local_name").drop_duplicates("country").head(10)
summary = {
    "cities": len(cities),
    "countries": len(countries),
    "people": int(cities["people"].sum()),
    "million_cities": int((cities["people"] >= 1_000_000).sum()),
    "south_share": float(cities.loc[cities["lat"] < 0, "people"].sum() / cities["people"].sum()),
    "continents": continents.reset_index().to_dict("records"),
    "countries_top": countries.head(18).to_dict("records"),
    "own_script": own_script[["city", "local_name", "country", "people"]].to_dict("records"),
}
with open("/workspace/outputs/summary.json", "w", encoding="utf-8") as file:
    json.dump(summary, file, ensure_ascii=False, indent=1)
print(f"{summary['cities']:,} cities in {summary['countries']} countries, {summary['people']:,} people")
continents
