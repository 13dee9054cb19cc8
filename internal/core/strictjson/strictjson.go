// Package strictjson decodes documents among the nodes of a fleet and files of ours: one JSON value without unknown
// fields. A field of a newer version is rejected rather than silently dropped, or kept where its name says that it may
// be ignored.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Decode decodes data into the value that v points to.
func Decode(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("data after the document")
	}
	return nil
}

// Others are the fields of a document whose names begin with [Ignorable] and that this release does not know.
type Others map[string]json.RawMessage

// Ignorable begins the names of fields that a release may ignore. It keeps those that it does not know.
const Ignorable = "opt_"

// DecodeKeeping decodes an object as Decode does, and returns its unknown fields that may be ignored.
func DecodeKeeping(data []byte, v any) (others Others, err error) {
	var all map[string]json.RawMessage
	if err := Decode(data, &all); err != nil {
		return nil, err
	}
	for name, value := range all {
		if strings.HasPrefix(name, Ignorable) {
			if others == nil {
				others = Others{}
			}
			others[name] = value
			delete(all, name)
		}
	}
	if len(others) == 0 {
		return nil, Decode(data, v)
	}
	if data, err = json.Marshal(all); err != nil {
		return nil, err
	}
	return others, Decode(data, v)
}

// EncodeKeeping encodes an object together with the fields that DecodeKeeping returned, in the order of their names.
func EncodeKeeping(v any, others Others) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil || len(others) == 0 {
		return data, err
	}
	if !bytes.HasSuffix(data, []byte("}")) {
		return nil, fmt.Errorf("no object to add fields to: %T", v)
	}
	rest, err := json.Marshal(others)
	if err != nil {
		return nil, err
	}
	if data = data[:len(data)-1]; len(data) > 1 {
		data = append(data, ',')
	}
	return append(data, rest[1:]...), nil
}
