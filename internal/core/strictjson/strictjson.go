// Package strictjson reads documents that nodes of a fleet write for each other, and files of
// ours: one JSON value, and in it no field that the reader does not know. What a newer
// build has added is refused, and not dropped in silence.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// Decode reads data into what v points to.
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
