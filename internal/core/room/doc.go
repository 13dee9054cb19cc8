// Package room holds the operators' settings of waiting rooms and finds the rooms that gate a request.
//
// [NewSet] turns a [Document] (rooms and their hosts) into an immutable [Set], or reports every fault at once.
// [Set.Match] is the hot path: it takes the raw host and path of a request and returns the rooms that gate it. Package
// match finds them.
//
// The package is pure: it reads no clock, opens nothing and logs nothing.
package room
