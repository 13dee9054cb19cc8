// Package history describes a room second by second: points of totals and gauges, their encoding,
// and the rows of charts and reports made from them.
//
// Totals only grow, so a lost point costs nothing: the next one has its changes too. A reader takes
// differences. Points of a minute or an hour are every 60th point of the level below, with the highest gauges.
package history
