// Package match finds which rooms stand in front of a request, by its host and by every
// reading of its path. A [Table] is the hot path; [CanonicalHost], [Readings] and [Fold] are its parts.
//
// # How a path is matched
//
// An edge and the origin behind it may not agree on what a path means: to one
// of them "/x/..;/%73ale" is a missing page, to the other it is "/sale". So the
// edge does not choose. A reading is one way in which some origin might
// understand the path (percent-escapes decoded, again, backslashes as slashes,
// parameters stripped, dot segments resolved, and so on, in any order); see
// [Readings]. In each reading the most specific room, the one with the longest
// path, is found, and the visitor must be admitted to all rooms so found. That
// is nearly always one room or none, since an ordinary path has one reading; a
// byte table tells so in a few dozen nanoseconds. A path with more readings
// than the bound, or one that cannot be read, is gated by every room of its
// host. The bytes of a request are never rewritten: Find only decides.
//
// # The knob
//
// [MaxReadings] bounds the work that one hostile path can cause. Raising it
// gates fewer odd paths by rooms they do not belong to and costs time per odd
// path; ordinary paths never come near it.
//
// Two things are not readings. A suffix ("/sale.json" for "/sale") names
// another path here; an origin that serves both wants both in
// additional_routes. And room paths in letters beyond ASCII are matched under
// letter case only, not under Unicode normalisation: an origin that treats
// composed and decomposed letters alike wants both spellings in
// additional_routes, or an ASCII path.
//
// The package is pure: it reads no clock, opens nothing and logs nothing.
package match
