package wire

import "errors"

// ErrDown says that the bus has no connection: the message was not sent and
// will not be. State is sent again anyway, so nobody retries.
var ErrDown = errors.New("bus: not connected")

// Bus carries messages between nodes, at most once and without memory. Its
// methods are safe for concurrent use.
type Bus interface {
	// Publish sends data on subject without waiting for anybody to take it. It
	// returns ErrDown while there is no connection.
	Publish(subject string, data []byte) error

	// Subscribe calls handle with every message on subject, one at a time, until
	// cancel is called; handle may not be running any more when cancel returns.
	// The subject may hold a wildcard; handle gets the one it was sent on.
	Subscribe(subject string, handle func(subject string, data []byte)) (cancel func(), err error)
}
