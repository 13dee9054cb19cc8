package room

// State reports whether the settings in force let a room admit visitors, and if not, the reason. The edge adds its own
// reasons: see package admission.
type State uint8

// The states. A pause and queue_all override the method.
const (
	Admitting State = iota
	QueuedAll       // queue_all or a pause: everybody waits, and only a release admits
	Rejecting       // queueing_method reject: no new visitor enters or waits
)

// State returns the state of s, which must be under events and controls: see [Set.Under].
func (s *Settings) State() State {
	switch {
	case s.QueueAll:
		return QueuedAll
	case s.QueueingMethod == MethodReject:
		return Rejecting
	}
	return Admitting
}
