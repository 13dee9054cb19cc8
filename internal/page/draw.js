// Only pages of an event with a draw have this script. drawn shows the proof of the draw, and before the start the drawn
// place; find and count are those of page.js. A stream message has the place too, as the number of people ahead. Free
// session permits are not subtracted before the start.
window.drawn = function (d, stands, find, count, message, ahead) {
	if (message && message.entrants) {
		d.place = Math.round(Math.max(0, ahead + Math.max(0, message.slots))) + 1;
		d.entrants = Math.max(d.place, message.entrants);
	}
	var text = JSON.stringify(d.receipt || { commit: d.commit }), copy = find("copy"), place = find("place");
	if (find("proof").textContent != text) find("proof").textContent = text;
	find("save").href = "data:application/json," + encodeURI(text);
	place.parentNode.hidden = !d.place || !stands;
	place.textContent = count.format(d.place || 0) + "/" + count.format(d.entrants || 0);
	copy.hidden = !navigator.clipboard;
	copy.onclick = function () { navigator.clipboard.writeText(text) };
};
