// Package match finds the rooms that cover a request, by its host and by every reading of its path. A [Table] is
// the hot path; [CanonicalHost], [Readings] and [Fold] are its parts.
//
// # How a path is matched
//
// An edge and its origin may not agree on the meaning of a path: for one of them "/x/..;/%73ale" is a missing page,
// for the other it is "/sale". So the edge does not choose. A reading is one interpretation of the path by some
// origin (percent-escapes decoded, once or twice, backslashes as slashes, parameters stripped, dot segments
// resolved, and so on, in any order); see [Readings]. For each reading the most specific room, the one with the
// longest path, is found, and the visitor must be admitted to all rooms found. That is nearly always one room or
// none, since an ordinary path has one reading; a byte table shows that in a few dozen nanoseconds. A path with
// more readings than the limit, or an invalid one, is gated by every room of its host. The request itself is never
// rewritten: Find only decides.
//
// # The knob
//
// [MaxReadings] bounds the work that one hostile path can cause. A larger value gates fewer odd paths by unrelated
// rooms and costs time per odd path; ordinary paths never come near it.
//
// Two variants are not readings. A suffix ("/sale.json" for "/sale") is another path here; an origin that serves
// both needs both in additional_routes. Room paths with non-ASCII letters are matched without letter case, but not
// under Unicode normalisation: an origin that treats composed and decomposed letters alike needs both spellings in
// additional_routes, or an ASCII path.
//
// The package is pure: it reads no clock, does no I/O and logs nothing.
package match
