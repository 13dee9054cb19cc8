// Package notices informs operators by webhooks: a room queues, it is paused, its limits change, the site is slow, an
// event begins, an alarm is raised.
//
// [Watch] is the core. It compares successive states of rooms and fleet with the last reported one, and returns the
// notices that are due. [Outbox] holds the undelivered notices and the times of the next attempts. Both are values,
// without clock or I/O. [Sender] is the shell: it stores both as one document, and delivers only stored notices.
//
// Only the leading global sends. Its successor reads the document, so it knows the reported state and the undelivered
// notices. It may repeat a delivery that its predecessor made and did not record. The ID of a notice follows from its
// cause, so receivers recognize the second copy.
package notices
