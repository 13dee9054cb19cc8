// Package ticket implements the sealed cookie of a visitor: a waiting ticket with a place in the queue, or an admitted
// one with a session.
//
// A ticket is a fixed binary layout sealed with AES-256-GCM under a key that is derived for its room from a root key of
// the [Keyring]. The room and the cookie's name are bound in as associated data, so a ticket of one room or of one
// cookie opens nowhere else. All decisive fields lie inside the seal; the cookie's own attributes are hints. A ticket
// that does not open counts as absent: never an error to the visitor, and never an admission.
//
// Every key is known everywhere for one rotation before it seals; see [Keyring.Rotate].
package ticket

import (
	"encoding/binary"
	"hash/fnv"
	"time"

	"vestibule/internal/core/fleettime"
)

// DC names a data centre inside a ticket: a hash of its name, see [DCOf].
type DC uint32

// Nobody is the home of a session without a permit, admitted by an isolated edge: see room.Settings.OnIsolation. No
// data centre may have this number.
const Nobody DC = 0

// DCOf returns the number of the data centre called name (FNV-1a, 32 bits). A configuration with colliding names is
// refused.
func DCOf(name string) DC {
	h := fnv.New32a()
	h.Write([]byte(name))
	return DC(h.Sum32())
}

// Flags of a ticket.
type Flags uint8

const (
	// Returned marks a visitor that counts as waiting, or did a moment ago: it came back with the ticket (two touches).
	Returned Flags = 1 << iota

	// criticalEnd is the first unused critical flag. A ticket with it, or with one between it and ignorable, comes from a
	// newer release and does not open.
	criticalEnd

	// ignorable is the first of the flags that a release may ignore. Those that it does not know stay in the ticket.
	ignorable Flags = 1 << 4
)

// Ticket is the decoded cookie of a visitor. The zero value is no ticket.
type Ticket struct {
	ID       uint64         // random; the same for the whole life of place and session
	Joined   fleettime.Time // when the visitor joined
	Placed   fleettime.Time // of a waiting visitor: a place other than Joined, 0 for none: see Place
	Seen     uint32         // Unix second of the last check-in that was counted
	Admitted uint32         // Unix second of admission, 0 while waiting
	Until    uint32         // session is valid while fleet time < Until; 0 while waiting
	Home     DC             // data centre that holds the session permit
	Epoch    uint32         // room epoch that issued it
	Forecast uint32         // forecast wait at joining, in seconds; 0 for none. See also PutQuartiles and PutRank
	Wait     uint32         // wait last shown, in seconds
	High     uint32         // upper end of the wait last shown; 0 for none
	Ahead    uint32         // of a waiting visitor: number ahead last shown, plus one, at most MaxAhead; 0 for none
	Low      uint16         // of a waiting visitor: low end of the wait last shown, in parts of Wait: see LowEnd
	Longer   uint32         // of a waiting visitor: Unix second at which the shown wait was last raised, 0 for never

	// Of a session's ticket only, in the place of Forecast, Wait and High. They tell copies of one ticket apart.
	Stamp  uint32 // random, of this version; never 0
	Parent uint32 // Stamp of the version it replaced; 0 for the waiting ticket
	Root   uint32 // of the line that continues after a copy was detected, inherited; 0 before

	Net uint32 // network of the session, see Bind; 0 for none. In the place of Longer

	Answer uint8 // of a waiting visitor: number of the response that set the ticket; 0 if never counted
	Flags  Flags
	Others string // fields of a newer release that may be ignored, as sealed: see fields.go

	// The following fields are not sealed. The caller of the engine sets them: the client network, whether not to
	// count the visitor again, and whether the place is kept.
	Network   Network
	Uncounted bool
	Kept      bool // its visitor is notified when its turn comes, so the grace period begins then
}

// Place returns the visitor's position in the order of the queue: earlier places go first. It is a time on the axis of
// Joined, and Joined itself if no other was assigned.
func (t *Ticket) Place() fleettime.Time {
	if t.Placed != 0 {
		return t.Placed
	}
	return t.Joined
}

// SetPlace assigns a place. Values of 0 or below mean the earliest place.
func (t *Ticket) SetPlace(place fleettime.Time) {
	if t.Placed = max(place, 1); t.Placed == t.Joined {
		t.Placed = 0
	}
}

// IsAdmitted reports whether the ticket has a session, valid or expired.
func (t *Ticket) IsAdmitted() bool { return t.Until != 0 }

// Waited reports whether the ticket was ever counted as waiting: the visitor came back with it.
func (t *Ticket) Waited() bool { return t.Flags&Returned != 0 || t.Answer != 0 }

// Valid reports whether the session of the ticket is valid at now.
func (t *Ticket) Valid(now fleettime.Time) bool {
	return t.Until != 0 && int64(now) < int64(t.Until)*1000
}

// Better reports whether a serves its visitor better than b at time now: a valid session beats a place in the queue,
// the longer session and the earlier place win, and any ticket beats none (ID 0). It is a strict order, so the order of
// a browser's cookies does not matter.
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

// plainSize is the unsealed length of a ticket, placedSize that of one with a place other than Joined. Fields follow at
// placedSize.
const (
	plainSize  = 8 + 6 + 4 + 4 + 4 + 4 + 4 + 4 + 4 + 4 + 4 + 1 + 1
	placedSize = plainSize + 6
	maxSize    = placedSize + maxFields
)

// LowEnd returns the low end of the wait last shown.
func (t *Ticket) LowEnd() time.Duration {
	return time.Duration(t.Wait) * time.Second * time.Duration(t.Low) / lowParts
}

// PutLowEnd stores the low end of t.Wait, and returns the stored value, rounded down.
func (t *Ticket) PutLowEnd(d time.Duration) time.Duration {
	if t.Low = 0; t.Wait > 0 {
		whole := time.Duration(t.Wait) * time.Second
		t.Low = uint16(min(lowParts, (max(0, d)*lowParts+lowParts)/whole)) // stable for values returned by LowEnd
	}
	return min(d, t.LowEnd())
}

// Wait and High are at most a day in seconds: the upper 15 of their 32 bits hold Ahead and Low.
const (
	waitBits = 17
	restBits = 32 - waitBits
	lowBits  = 9
	lowParts = 1<<lowBits - 1

	// MaxAhead is the maximum of Ahead.
	MaxAhead = 1<<(2*restBits-lowBits) - 1
)

// PutQuartiles stores the first and third quartile of the wait in a random room, where Wait is the second. They take
// the place of Forecast, which is meaningless there. It returns the stored values: the first is at most Wait, the third
// between Wait and High.
func (t *Ticket) PutQuartiles(first, third time.Duration) (time.Duration, time.Duration) {
	wait, high := time.Duration(t.Wait)*time.Second, time.Duration(t.High)*time.Second
	t.Forecast = byLot | quartile(min(first, wait), 0, wait)<<quartileBits | quartile(min(third, high), wait, high)
	first, third, _ = t.Quartiles()
	return first, third
}

// Quartiles returns the values of PutQuartiles; ok is false without them.
func (t *Ticket) Quartiles() (first, third time.Duration, ok bool) {
	if t.Forecast&byRank != byLot || t.IsAdmitted() {
		return 0, 0, false
	}
	const parts = 1<<quartileBits - 1
	wait, high := time.Duration(t.Wait)*time.Second, time.Duration(t.High)*time.Second
	return wait * time.Duration(t.Forecast>>quartileBits&parts) / parts,
		wait + (high-wait)*time.Duration(t.Forecast&parts)/parts, true
}

// Rank returns the rank in a draw, from 1, or 0 for none.
func (t *Ticket) Rank() uint64 {
	if t.Forecast&byRank != byRank || t.IsAdmitted() {
		return 0
	}
	return uint64(t.Forecast &^ byRank)
}

// PutRank stores the rank in a draw, in the place of Forecast: a visitor of a draw gets no forecast when it joins.
func (t *Ticket) PutRank(n uint64) { t.Forecast = byRank | uint32(min(n, MaxRank)) }

// quartile returns the relative position of d between two times, in parts, rounded down.
func quartile(d, from, to time.Duration) uint32 {
	const parts = 1<<quartileBits - 1
	if to <= from {
		return 0
	}
	return uint32(max(0, min(parts, ((d-from)*parts+parts)/(to-from)))) // stable for values returned by Quartiles
}

const (
	byLot        = 1 << 31       // in Forecast: it is no forecast; without the next bit it holds quartiles
	byRank       = byLot | 1<<30 // it holds the rank in a draw
	quartileBits = 15

	// MaxRank is the greatest stored rank; worse ones are stored as this.
	MaxRank = 1<<30 - 1
)

// packShown packs the values last shown to a waiting visitor.
func (t *Ticket) packShown() (wait, high uint32) {
	const most = 1<<waitBits - 1
	rest := min(t.Ahead, MaxAhead)<<lowBits | uint32(min(t.Low, lowParts))
	return rest>>restBits<<waitBits | min(t.Wait, most), rest<<waitBits | min(t.High, most)
}

// unpackShown is the inverse of packShown.
func (t *Ticket) unpackShown() {
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

// sealed clamps a time to the range of a ticket.
func sealed(t fleettime.Time) fleettime.Time { return min(max(t, 0), joinedMax) }

// encode writes the layout and returns its version, the first that suffices, and its length. Big endian, for readable
// dumps.
func (t *Ticket) encode(p *[maxSize]byte) (version byte, size int) {
	binary.BigEndian.PutUint64(p[0:], t.ID)
	putTime(p[8:], t.Joined)
	binary.BigEndian.PutUint32(p[14:], t.Seen)
	binary.BigEndian.PutUint32(p[18:], t.Admitted)
	binary.BigEndian.PutUint32(p[22:], t.Until)
	binary.BigEndian.PutUint32(p[26:], uint32(t.Home))
	binary.BigEndian.PutUint32(p[30:], t.Epoch)
	forecast, longer := t.Forecast, t.Longer
	wait, high := t.packShown()
	if t.IsAdmitted() {
		forecast, wait, high, longer = t.Stamp, t.Parent, t.Root, t.Net
	}
	binary.BigEndian.PutUint32(p[34:], forecast)
	binary.BigEndian.PutUint32(p[38:], wait)
	binary.BigEndian.PutUint32(p[42:], high)
	binary.BigEndian.PutUint32(p[46:], longer)
	p[50], p[51] = t.Answer, uint8(t.Flags)
	place := t.Placed
	if t.IsAdmitted() || sealed(t.Place()) == sealed(t.Joined) {
		place = 0
	}
	putTime(p[plainSize:], place)
	switch {
	case t.Others != "":
		return extended, placedSize + copy(p[placedSize:], t.Others)
	case place != 0:
		return placed, placedSize
	}
	return plain, plainSize
}

// decode reads the layout of a version and reports whether it can have been issued, and is understood.
func (t *Ticket) decode(version byte, p []byte) bool {
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
		t.unpackShown()
	}
	if version != plain {
		if t.Placed = getTime(p[plainSize:]); t.Placed != 0 && (t.Placed == t.Joined || t.IsAdmitted()) ||
			t.Placed == 0 && version == placed {
			return false
		}
	}
	if version == extended && !t.readFields(p[placedSize:]) {
		return false
	}
	return t.ID != 0 && t.Flags%ignorable < criticalEnd && (t.Admitted != 0) == (t.Until != 0)
}
