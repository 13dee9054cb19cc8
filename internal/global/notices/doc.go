// Package notices tells operators what they must know, by webhooks: a room queues, it is paused, its limits
// change, the site is slow, an event begins, an alarm is raised.
//
// [Watch] is the core. It compares successive states of rooms and fleet with what operators were told, and returns the
// notices that are due. [Outbox] holds the notices that are not delivered yet, and when to try again. Both are values,
// without clock or I/O. [Sender] is the shell: it stores both as one document, and delivers only what is stored.
//
// Only the leading global sends. Its successor reads the document, so it knows what was told and what is still to be
// delivered. It may deliver again what its predecessor had delivered and not recorded. The ID of a notice follows from
// its cause, so receivers recognize the second copy.
package notices
