package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"vestibule/internal/core/fleettime"
)

// statusNames are the JSON names of state fields, by type and field. [StatusGaps] reports missing ones.
var statusNames = map[string]string{
	"admission.Status.Inc": "incarnation", "admission.Status.Tenure": "tenure", "admission.Status.Site": "data_center_site",

	"admission.Ledger.Granted": "rights_granted", "admission.Ledger.Spent": "rights_spent", "admission.Ledger.Returned": "rights_returned",
	"admission.Ledger.RateGranted": "rate_rights_granted", "admission.Ledger.RateReturned": "rate_rights_returned", "admission.Ledger.RateIdle": "rate_rights_idle",
	"admission.Ledger.Renewed": "renewals", "admission.Ledger.RenewCeil": "renewals_allowed", "admission.Ledger.Keep": "rights_to_keep",
	"admission.Ledger.RateKeep": "rate_rights_to_keep", "admission.Ledger.Sessions": "sessions", "admission.Ledger.Held": "requests_held",
	"admission.Ledger.Waiting": "people_waiting", "admission.Ledger.Admitted": "visitors_admitted", "admission.Ledger.LetIn": "visitors_let_in_without_a_right",
	"admission.Ledger.Guests": "sessions_of_other_edges", "admission.Ledger.Copied": "sessions_copied", "admission.Ledger.Life": "ticket_life_seconds",

	"region.Status.Site": "data_center_site", "region.Status.Copy": "original_site", "region.Status.Members": "data_center_list_version",
	"region.EdgeStatus.Inc": "incarnation",
	"region.Wait.Inc":       "incarnation", "region.Wait.Sessions": "sessions_kept_free", "region.Wait.Rate": "rate_rights_not_lent",

	"region.Ledger.Granted": "rights_granted", "region.Ledger.Returned": "rights_returned",
	"region.Ledger.RateGranted": "rate_rights_granted", "region.Ledger.RateReturned": "rate_rights_returned",
	"region.Ledger.Free": "rights_free", "region.Ledger.RateFree": "rate_rights_free", "region.Ledger.Active": "sessions",
	"region.Ledger.Presumed": "sessions_presumed", "region.Ledger.RatePresumed": "rate_rights_presumed_used", "region.Ledger.Credit": "rights_at_edges_not_known_to_be_spent",
	"region.Ledger.Keep": "rights_to_keep", "region.Ledger.RateKeep": "rate_rights_to_keep", "region.Ledger.Want": "rights_wanted",
	"region.Ledger.HeldPeople": "people_held", "region.Ledger.Waiting": "people_waiting", "region.Ledger.Copied": "tickets_copied",
	"region.Ledger.Excess": "sessions_in_excess", "region.Ledger.Movers": "people_moving_in", "region.Ledger.Freed": "oldest_expiry_counted_unix_seconds",
	"region.Ledger.Gen": "generation",

	"root.Ledger.Total": "rights_total", "root.Ledger.Rate": "rate_rights_total", "root.Ledger.Free": "rights_free",
	"root.Ledger.RateFree": "rate_rights_free", "root.Ledger.Centres": "data_centers", "root.Ledger.Excess": "sessions_in_excess", "root.Ledger.Beyond": "sessions_beyond_the_limit",
	"root.PassLedger.Release": "release", "root.PassLedger.N": "people_to_let_in", "root.PassLedger.Free": "passes_free", "root.PassLedger.Spent": "people_let_in",
	"root.CentreLedger.Excess": "sessions_in_excess", "root.CentreLedger.Held": "rights_held", "root.CentreLedger.RateHeld": "rate_rights_held",
	"root.CentreLedger.Idle": "rights_idle", "root.CentreLedger.RateIdle": "rate_rights_idle", "root.CentreLedger.Keep": "rights_to_keep",
	"root.CentreLedger.RateKeep": "rate_rights_to_keep", "root.CentreLedger.Active": "sessions", "root.CentreLedger.Want": "rights_wanted",
	"root.CentreLedger.HeldPeople": "people_held", "root.CentreLedger.Gen": "generation",

	"wire.Term.N": "number", "wire.Term.Nonce": "nonce",
	"wire.View.Version": "version", "wire.View.Park": "held_up_to", "wire.View.Slots": "rights_free", "wire.View.Active": "sessions", "wire.View.Mu": "entering_per_second",
	"wire.View.Theta": "giving_up_per_second_each", "wire.View.Joining": "people_joining_per_second",
	"draw.Round.Seed":  secret,
	"estimate.Pace.Mu": "entering_per_second", "estimate.Range.Low": "low_times_forecast", "estimate.Range.High": "high_times_forecast",
}

// secret marks fields that must not be shown: a round's seed reveals future places.
const secret = "-"

// statusWords are the names of enum values without a String method, by number.
var statusWords = map[string][]string{"region.WaitReason": {"", "time", "books", "edge", "sessions", "rate_rights", "guessed_time"}}

var (
	durationType = reflect.TypeFor[time.Duration]()
	monoType     = reflect.TypeFor[fleettime.Mono]()
	timeType     = reflect.TypeFor[fleettime.Time]()
	stringerType = reflect.TypeFor[fmt.Stringer]()
)

// lastTime bounds the fleet times shown: later ones mean "no bound".
var lastTime = fleettime.TimeOf(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))

// statusJSON returns a node's state as JSON: snake case names, durations in seconds, times in UTC, enums by name,
// and no process-internal values.
func statusJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	if err := writeStatus(&b, reflect.ValueOf(v)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func writeStatus(b *bytes.Buffer, v reflect.Value) error {
	switch {
	case !v.IsValid() || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && v.IsNil():
		b.WriteString("null")
		return nil
	case v.Type() == durationType:
		b.WriteString(strconv.FormatFloat(time.Duration(v.Int()).Seconds(), 'f', -1, 64))
		return nil
	case v.Type() == timeType && (v.Int() <= 0 || fleettime.Time(v.Int()) >= lastTime):
		b.WriteString("null")
		return nil
	case statusWords[v.Type().String()] != nil:
		words := statusWords[v.Type().String()]
		return writeValue(b, words[min(v.Uint(), uint64(len(words)-1))])
	case v.Kind() != reflect.Struct && v.Kind() != reflect.Pointer && v.Type().Implements(stringerType):
		return writeValue(b, fmt.Sprint(v.Interface()))
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return writeStatus(b, v.Elem())
	case reflect.Struct:
		b.WriteByte('{')
		if err := writeFields(b, v); err != nil {
			return err
		}
		b.WriteByte('}')
		return nil
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(fmt.Sprint(x), fmt.Sprint(y)) })
		return writeAll(b, "{}", len(keys), func(i int) error {
			if err := writeValue(b, fmt.Sprint(keys[i])); err != nil {
				return err
			}
			b.WriteByte(':')
			return writeStatus(b, v.MapIndex(keys[i]))
		})
	case reflect.Slice, reflect.Array:
		return writeAll(b, "[]", v.Len(), func(i int) error { return writeStatus(b, v.Index(i)) })
	case reflect.Uint64:
		if v.Uint() > 1<<53 { // exact range of a JSON reader's numbers
			return writeValue(b, strconv.FormatUint(v.Uint(), 10))
		}
		return writeValue(b, v.Interface())
	default:
		return writeValue(b, v.Interface())
	}
}

func writeAll(b *bytes.Buffer, ends string, n int, one func(i int) error) error {
	b.WriteByte(ends[0])
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := one(i); err != nil {
			return err
		}
	}
	b.WriteByte(ends[1])
	return nil
}

// writeFields writes the fields of a struct, including embedded ones.
func writeFields(b *bytes.Buffer, v reflect.Value) error {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, shown := statusName(v.Type(), f)
		if !shown {
			continue
		}
		if f.Anonymous {
			if err := writeFields(b, v.Field(i)); err != nil {
				return err
			}
			continue
		}
		if b.Bytes()[b.Len()-1] != '{' {
			b.WriteByte(',')
		}
		if err := writeValue(b, name); err != nil {
			return err
		}
		b.WriteByte(':')
		if err := writeStatus(b, v.Field(i)); err != nil {
			return err
		}
	}
	return nil
}

func writeValue(b *bytes.Buffer, v any) error {
	data, err := json.Marshal(v)
	b.Write(data)
	return err
}

// statusName returns the JSON name of a field, and whether to show it.
func statusName(t reflect.Type, f reflect.StructField) (name string, shown bool) {
	if !f.IsExported() || f.Type == monoType || f.Type.Kind() == reflect.Struct && f.Type.NumField() > 0 && !anyExported(f.Type) {
		return "", false
	}
	if f.Type.Kind() == reflect.Pointer && f.Type.Elem().Kind() == reflect.Struct && !anyExported(f.Type.Elem()) {
		return "", false
	}
	name = statusNames[t.String()+"."+f.Name]
	if name == secret {
		return "", false
	}
	if name == "" {
		name = snake(f.Name)
	}
	if f.Type == durationType {
		name += "_seconds"
	}
	return name, true
}

func anyExported(t reflect.Type) bool {
	for f := range t.Fields() {
		if f.IsExported() {
			return true
		}
	}
	return false
}

// snake converts a Go name to snake case.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// StatusGaps returns state fields without a name, for the test of statusNames.
func StatusGaps(t reflect.Type) (gaps []string) {
	seen := map[reflect.Type]bool{}
	var look func(t reflect.Type)
	look = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			look(t.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		if seen[t] {
			return
		}
		seen[t] = true
		for f := range t.Fields() {
			if _, shown := statusName(t, f); !shown {
				continue
			}
			plain := f.Type.ConvertibleTo(reflect.TypeFor[float64]()) && f.Type != durationType && !f.Type.Implements(stringerType) && statusWords[f.Type.String()] == nil
			if key := t.String() + "." + f.Name; plain && statusNames[key] == "" {
				gaps = append(gaps, key)
			}
			look(f.Type)
		}
	}
	look(t)
	return gaps
}
