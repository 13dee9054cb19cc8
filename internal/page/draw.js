// Only pages of an event with a draw have this script. drawn shows when the draw closes, its proof, and before the start
// the drawn place; find and count are those of page.js.
window.drawn = function (d, stands, find, count, closes) {
	var text = JSON.stringify(d.receipt || { commit: d.commit }), copy = find("copy"), place = find("place");
	if (find("proof").textContent != text) find("proof").textContent = text;
	find("save").href = "data:application/json," + encodeURI(text);
	place.parentNode.hidden = !d.place || !stands;
	if (d.place) place.textContent = "≈\u00a0" + count.format(d.place) + "/" + count.format(d.entrants);
	find("closes").textContent = closes;
	find("closes").parentNode.hidden = d.stage != "open";
	copy.hidden = !navigator.clipboard;
	copy.onclick = function () { navigator.clipboard.writeText(text) };
};
