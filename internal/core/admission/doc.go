// Package admission is the edge's core: it decides from memory alone whether a visitor is served, admitted, held or
// queued.
//
// An [Engine] is a child of its data centre's regional aggregator. It holds permits granted by the regional and
// admits only with an unspent permit of T and one of R, under a valid lease, and charges both in the step that
// decides. It reports growing counters per expiry second, and grants tell it the next limits.
//
// A request: [Engine.Arrive] returns a [Decision]. For Hold, the shell keeps the request open and calls
// [Rooms.Hold]. [Rooms.Release] gives permits that arrive later to the held visitor that joined first, and
// [Rooms.GiveUp] ends the hold of a visitor that waited too long.
//
// Nothing here reads a clock, draws random numbers of its own, does I/O or starts a goroutine. An Engine is not
// safe for concurrent use: the shell holds one mutex around it. The limits of its rooms and [Limits] bound its
// memory. Visitors that wait and are not held take none.
package admission
