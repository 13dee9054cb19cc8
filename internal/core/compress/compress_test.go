package compress

import (
	"bytes"
	"compress/flate"
	"strings"
	"testing"
)

func TestDecompressionIsBounded(t *testing.T) {
	plain := bytes.Repeat([]byte("waiting "), 1000)
	for name, c := range map[string]struct {
		data []byte
		read func(data []byte, most int) ([]byte, error)
	}{
		"gzip":  {Gzip(plain), Gunzip},
		"flate": {Deflate(nil, plain, flate.BestSpeed), Inflate},
	} {
		if got, err := c.read(c.data, len(plain)); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%s, at the bound: %d bytes, %v", name, len(got), err)
		}
		if got, err := c.read(c.data, len(plain)-1); err == nil || !strings.Contains(err.Error(), "7999 bytes") {
			t.Errorf("%s, above the bound: %d bytes, %v", name, len(got), err)
		}
		for _, bad := range [][]byte{nil, []byte("no such data"), c.data[:len(c.data)/2]} {
			if got, err := c.read(bad, len(plain)); err == nil {
				t.Errorf("%s: %q became %d bytes", name, bad, len(got))
			}
		}
	}
}

func TestDeflateAppends(t *testing.T) {
	data := Deflate([]byte("head"), []byte("text"), flate.DefaultCompression)
	if got, err := Inflate(data[4:], 4); !bytes.HasPrefix(data, []byte("head")) || string(got) != "text" || err != nil {
		t.Errorf("%q, %q, %v", data, got, err)
	}
}
