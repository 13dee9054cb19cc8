// Package ticket is the sealed cookie that a visitor carries: a waiting
// ticket that holds a place in the line, or an admitted one that holds a
// session.
//
// A ticket is a fixed binary layout sealed with AES-256-GCM under a key that
// is derived for its room from a root key of the [Keyring]. The room and the
// cookie's name are bound in as associated data, so a ticket of one room or of
// one cookie opens nowhere else. Everything that decides anything lies inside
// the seal; the cookie's own attributes are hints. A ticket that does not open
// is no ticket: never an error to the visitor and never a pass.
//
// Every key is known everywhere for one rotation before anything is sealed with it;
// see [Keyring.Rotate].
package ticket

import (
	"encoding/binary"
	"time"

	"vestibule/internal/core/fleettime"
)

// DC names a data centre inside a ticket: a hash of its name, see [DCOf].
type DC uint32

// Nobody is the home of a session that holds no right: an edge that was cut off
// let its visitor in, see room.Settings.OnIsolation. No data centre may have
// this number.
const Nobody DC = 0

// DCOf returns the number of the data centre called name (FNV-1a, 32 bits).
// A fleet whose names collide is refused when its configuration is read.
func DCOf(name string) DC {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return DC(h)
}

// Flags of a ticket.
type Flags uint8

const (
	// Returned says that the ticket is counted among the people who wait, or was a
	// moment ago: the visitor came back with it (two touches).
	Returned Flags = 1 << iota

	// flagsEnd marks the first bit without a meaning; a ticket that sets it or
	// a higher one comes from a newer version and does not open.
	flagsEnd
)

// Ticket is what a visitor carries. The zero value is no ticket.
type Ticket struct {
	ID       uint64         // random; the same for the whole life of place and session
	Joined   fleettime.Time // when the visitor joined
	Placed   fleettime.Time // a place in the line that is not Joined, 0 for none: see Place. Of who waits only
	Seen     uint32         // Unix second of the last check-in that was counted
	Admitted uint32         // Unix second of admission, 0 while waiting
	Until    uint32         // session is valid while fleet time < Until; 0 while waiting
	Home     DC             // data centre that holds the session's right
	Epoch    uint32         // room epoch that issued it
	Forecast uint32         // seconds of wait that were forecast at joining, 0 for none
	Wait     uint32         // seconds of wait that the visitor was told last,
	High     uint32         // and at most; 0 for nothing told
	Ahead    uint32         // people ahead that were told last, and one more, MaxAhead at most; 0 for nothing told. As Low, of who waits only
	Low      uint16         // the low end that was told last, in parts of Wait: see LowEnd
	Longer   uint32         // Unix second at which the wait that is told was raised last, 0 for never; of who waits only

	// Of a session's ticket only, in the place of Forecast, Wait and High, which are
	// not needed any more. They tell copies of one ticket apart.
	Stamp  uint32 // random, of this version; never 0
	Parent uint32 // Stamp of the version that was shown for it; 0 where that was the place
	Root   uint32 // Stamp of the first version after the place, or what a line of copies was given that goes on; all that follow have it

	Net uint32 // the network that the session is bound to, see Bind; 0 for none. In the place of Longer

	Answer uint8 // of the answer that brought the ticket to who waits: tells pages of one visitor apart; 0 before it was ever counted
	Flags  Flags

	// What follows is not sealed. Whoever hands the ticket to the engine says where it is
	// shown, and may ask that its visitor be not counted anew among those who wait.
	Network   Network
	Uncounted bool
}

// Late makes of the ticket of a session one that an answer brings which took long: the
// browser may have gone on with others meanwhile, so nothing follows from its descent.
// It has no parent, like a first version, but that is its own root.
func (t *Ticket) Late() {
	if t.Parent = 0; t.Root == t.Stamp {
		t.Root = 0
	}
}

// Place returns where in the line the visitor stands: before everybody whose place is later.
// It is a time on the axis of Joined, and Joined itself for everybody who was given no other.
func (t *Ticket) Place() fleettime.Time {
	if t.Placed != 0 {
		return t.Placed
	}
	return t.Joined
}

// SetPlace gives the ticket a place. One of 0 or before is as early as there is any.
func (t *Ticket) SetPlace(place fleettime.Time) {
	if t.Placed = max(place, 1); t.Placed == t.Joined {
		t.Placed = 0
	}
}

// IsAdmitted reports whether the ticket is a session's, valid or expired.
func (t *Ticket) IsAdmitted() bool { return t.Until != 0 }

// Waited reports whether the ticket was counted among the people who wait at least
// once: the visitor came back with it.
func (t *Ticket) Waited() bool { return t.Flags&Returned != 0 || t.Answer != 0 }

// Valid reports whether the ticket holds a session that is valid at now.
func (t *Ticket) Valid(now fleettime.Time) bool {
	return t.Until != 0 && int64(now) < int64(t.Until)*1000
}

// Better reports whether a serves its visitor better than b at time now: a
// valid session beats a place in the line, the longer session and the earlier
// place win, and any ticket beats none (ID 0). It is a strict order, so the
// choice does not depend on the order in which a browser sends its cookies.
func Better(a, b *Ticket, now fleettime.Time) bool {
	if (a.ID != 0) != (b.ID != 0) {
		return a.ID != 0
	}
	av, bv := a.Valid(now), b.Valid(now)
	if av != bv {
		return av
	}
	if av && a.Until != b.Until {
		return a.Until > b.Until
	}
	if a.IsAdmitted() != b.IsAdmitted() { // an expired session is worth less than a place
		return !a.IsAdmitted()
	}
	if x, y := a.Place(), b.Place(); x != y {
		return x < y
	}
	return a.Seen > b.Seen
}

// plainSize is the length of a ticket before it is sealed, placedSize that of one whose
// place is not its Joined.
const (
	plainSize  = 8 + 6 + 4 + 4 + 4 + 4 + 4 + 4 + 4 + 4 + 4 + 1 + 1
	placedSize = plainSize + 6
)

// LowEnd returns the low end of the wait that was told last.
func (t *Ticket) LowEnd() time.Duration {
	return time.Duration(t.Wait) * time.Second * time.Duration(t.Low) / lowParts
}

// PutLowEnd notes the low end of t.Wait that is to be told, and returns what the
// ticket can hold of it, which is at most that.
func (t *Ticket) PutLowEnd(d time.Duration) time.Duration {
	if t.Low = 0; t.Wait > 0 {
		whole := time.Duration(t.Wait) * time.Second
		t.Low = uint16(min(lowParts, (max(0, d)*lowParts+lowParts)/whole)) // what LowEnd returned stays as it is
	}
	return min(d, t.LowEnd())
}

// Wait and High are told in seconds of a day at most: of the 32 bits of each, the
// upper 15 hold Ahead and Low.
const (
	waitBits = 17
	restBits = 32 - waitBits
	lowBits  = 9
	lowParts = 1<<lowBits - 1

	// MaxAhead is the largest Ahead that a ticket can hold.
	MaxAhead = 1<<(2*restBits-lowBits) - 1
)

// PutQuartiles notes, where chance decides who is next, the quartiles of the wait that are told besides Wait, the second, in the
// place of Forecast: nothing that is forecast there tells anything of other waits. It returns what the ticket can hold of
// them: the first is Wait at most, and the third between Wait and High.
func (t *Ticket) PutQuartiles(first, third time.Duration) (time.Duration, time.Duration) {
	wait, high := time.Duration(t.Wait)*time.Second, time.Duration(t.High)*time.Second
	t.Forecast = byLot | quartile(min(first, wait), 0, wait)<<quartileBits | quartile(min(third, high), wait, high)
	first, third, _ = t.Quartiles()
	return first, third
}

// Quartiles returns what PutQuartiles noted; ok is false where nothing was told of a room in which chance decides.
func (t *Ticket) Quartiles() (first, third time.Duration, ok bool) {
	if t.Forecast&byLot == 0 || t.IsAdmitted() {
		return 0, 0, false
	}
	const parts = 1<<quartileBits - 1
	wait, high := time.Duration(t.Wait)*time.Second, time.Duration(t.High)*time.Second
	return wait * time.Duration(t.Forecast>>quartileBits&parts) / parts, wait + (high-wait)*time.Duration(t.Forecast&parts)/parts, true
}

// quartile returns where a time lies between two others, in parts: at most there.
func quartile(d, from, to time.Duration) uint32 {
	const parts = 1<<quartileBits - 1
	if to <= from {
		return 0
	}
	return uint32(max(0, min(parts, ((d-from)*parts+parts)/(to-from)))) // what Quartiles returned stays as it is
}

const (
	byLot        = 1 << 31 // in Forecast: it holds quartiles
	quartileBits = 15
)

// told packs what a visitor who waits was told last.
func (t *Ticket) told() (wait, high uint32) {
	const most = 1<<waitBits - 1
	rest := min(t.Ahead, MaxAhead)<<lowBits | uint32(min(t.Low, lowParts))
	return rest>>restBits<<waitBits | min(t.Wait, most), rest<<waitBits | min(t.High, most)
}

// untold is the inverse of told.
func (t *Ticket) untold() {
	const most = 1<<waitBits - 1
	rest := t.Wait>>waitBits<<restBits | t.High>>waitBits
	t.Ahead, t.Low = rest>>lowBits, uint16(rest&lowParts)
	t.Wait, t.High = t.Wait&most, t.High&most
}

// joinedMax bounds Joined and Place: 48 bits of milliseconds, the year 10889.
const joinedMax = 1<<48 - 1

func putTime(p []byte, t fleettime.Time) {
	ms := sealed(t)
	binary.BigEndian.PutUint16(p, uint16(ms>>32))
	binary.BigEndian.PutUint32(p[2:], uint32(ms))
}

func getTime(p []byte) fleettime.Time {
	return fleettime.Time(int64(binary.BigEndian.Uint16(p))<<32 | int64(binary.BigEndian.Uint32(p[2:])))
}

// sealed returns what a ticket can hold of a time.
func sealed(t fleettime.Time) fleettime.Time { return min(max(t, 0), joinedMax) }

// put writes the layout and returns its version: the first wherever that holds the ticket.
// Big endian, so that a dump can be read by eye.
func (t *Ticket) put(p *[placedSize]byte) (version byte) {
	binary.BigEndian.PutUint64(p[0:], t.ID)
	putTime(p[8:], t.Joined)
	binary.BigEndian.PutUint32(p[14:], t.Seen)
	binary.BigEndian.PutUint32(p[18:], t.Admitted)
	binary.BigEndian.PutUint32(p[22:], t.Until)
	binary.BigEndian.PutUint32(p[26:], uint32(t.Home))
	binary.BigEndian.PutUint32(p[30:], t.Epoch)
	forecast, longer := t.Forecast, t.Longer
	wait, high := t.told()
	if t.IsAdmitted() {
		forecast, wait, high, longer = t.Stamp, t.Parent, t.Root, t.Net
	}
	binary.BigEndian.PutUint32(p[34:], forecast)
	binary.BigEndian.PutUint32(p[38:], wait)
	binary.BigEndian.PutUint32(p[42:], high)
	binary.BigEndian.PutUint32(p[46:], longer)
	p[50], p[51] = t.Answer, uint8(t.Flags)
	if t.IsAdmitted() || sealed(t.Place()) == sealed(t.Joined) {
		return plain
	}
	putTime(p[plainSize:], t.Placed)
	return placed
}

// get reads the layout of a version and reports whether it can have been issued.
func (t *Ticket) get(version byte, p *[placedSize]byte) bool {
	*t = Ticket{
		ID:       binary.BigEndian.Uint64(p[0:]),
		Joined:   getTime(p[8:]),
		Seen:     binary.BigEndian.Uint32(p[14:]),
		Admitted: binary.BigEndian.Uint32(p[18:]),
		Until:    binary.BigEndian.Uint32(p[22:]),
		Home:     DC(binary.BigEndian.Uint32(p[26:])),
		Epoch:    binary.BigEndian.Uint32(p[30:]),
		Forecast: binary.BigEndian.Uint32(p[34:]),
		Wait:     binary.BigEndian.Uint32(p[38:]),
		High:     binary.BigEndian.Uint32(p[42:]),
		Longer:   binary.BigEndian.Uint32(p[46:]),
		Answer:   p[50],
		Flags:    Flags(p[51]),
	}
	if t.IsAdmitted() {
		t.Stamp, t.Parent, t.Root, t.Net = t.Forecast, t.Wait, t.High, t.Longer
		t.Forecast, t.Wait, t.High, t.Longer = 0, 0, 0, 0
	} else {
		t.untold()
	}
	if version == placed {
		if t.Placed = getTime(p[plainSize:]); t.Placed == t.Joined || t.Placed == 0 || t.IsAdmitted() {
			return false
		}
	}
	return t.ID != 0 && t.Flags < flagsEnd && (t.Admitted != 0) == (t.Until != 0)
}
