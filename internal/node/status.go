package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/core/fleettime"
)

// lastTime bounds the fleet times shown: later ones mean "no bound".
var lastTime = fleettime.TimeOf(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))

// statusJSON returns a node's state as JSON: the fields with a json tag, by the name in it. Durations are in seconds,
// times in UTC, enums by name.
func statusJSON(v any) ([]byte, error) {
	var w statusWriter
	w.write(reflect.ValueOf(v))
	return w.Bytes(), w.err
}

type statusWriter struct {
	bytes.Buffer
	err error
}

func (w *statusWriter) write(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			w.WriteString("null")
		} else {
			w.write(v.Elem())
		}
	case reflect.Struct:
		w.WriteByte('{')
		for _, f := range reflect.VisibleFields(v.Type()) {
			if name := f.Tag.Get("json"); name != "" && name != "-" {
				w.member(name, v.FieldByIndex(f.Index))
			}
		}
		w.WriteByte('}')
	case reflect.Map:
		w.WriteByte('{')
		keys := v.MapKeys()
		slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
		for _, k := range keys {
			w.member(k.String(), v.MapIndex(k))
		}
		w.WriteByte('}')
	case reflect.Slice, reflect.Array:
		w.WriteByte('[')
		for i := range v.Len() {
			w.comma()
			w.write(v.Index(i))
		}
		w.WriteByte(']')
	default:
		w.marshal(statusScalar(v.Interface()))
	}
}

// member writes a member of the JSON object that is open.
func (w *statusWriter) member(name string, v reflect.Value) {
	w.comma()
	w.marshal(name)
	w.WriteByte(':')
	w.write(v)
}

// comma separates the next member or element from the one before it.
func (w *statusWriter) comma() {
	if last := w.Bytes()[w.Len()-1]; last != '{' && last != '[' {
		w.WriteByte(',')
	}
}

func (w *statusWriter) marshal(v any) {
	data, err := json.Marshal(v)
	w.Write(data)
	w.err = errors.Join(w.err, err)
}

// statusScalar returns v as encoding/json is to write it.
func statusScalar(v any) any {
	switch v := v.(type) {
	case time.Duration:
		return json.Number(strconv.FormatFloat(v.Seconds(), 'f', -1, 64))
	case fleettime.Time:
		if v <= 0 || v >= lastTime {
			return nil
		}
		return v.String()
	case fmt.Stringer:
		return v.String()
	case uint64:
		if v > 1<<53 { // exact range of a JSON reader's numbers
			return strconv.FormatUint(v, 10)
		}
	}
	return v
}
