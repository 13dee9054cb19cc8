// Package room holds what an operator says about waiting rooms and tells, for
// one request, which of them stand in front of it.
//
// A [Document] (rooms, and the hosts they stand on) becomes an immutable [Set]
// by [NewSet], which reports every fault at once. [Set.Match] is the hot path:
// it takes the host and the path of a request as they stood in the request and
// answers which rooms gate it. Package match finds them.
//
// The package is pure: it reads no clock, opens nothing and logs nothing.
package room
