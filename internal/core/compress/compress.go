// Package compress packs documents and blocks for stores and messages. Every reader has a bound: a small input that
// would become a huge one is refused.
package compress

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"fmt"
	"io"
	"sync" //nolint:depguard // a pool of decompressors, which are large, is no state
)

// Gzip returns plain with gzip.
func Gzip(plain []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	finish(z, plain)
	return out.Bytes()
}

// Gunzip is the inverse of Gzip. A result of more than most bytes is an error.
func Gunzip(data []byte, most int) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return read(z, data, most)
}

// Deflate appends plain to out, compressed without header and checksum, at a level of compress/flate.
func Deflate(out, plain []byte, level int) []byte {
	b := bytes.NewBuffer(out)
	z, err := flate.NewWriter(b, level)
	if err != nil {
		panic(err) // an unknown level
	}
	finish(z, plain)
	return b.Bytes()
}

// Inflate is the inverse of Deflate. A result of more than most bytes is an error.
func Inflate(data []byte, most int) ([]byte, error) {
	r := inflaters.Get().(io.ReadCloser)
	defer inflaters.Put(r)
	if err := r.(flate.Resetter).Reset(bytes.NewReader(data), nil); err != nil {
		return nil, err
	}
	return read(r, data, most)
}

// inflaters are readers of compressed data, which are large.
var inflaters = sync.Pool{New: func() any { return flate.NewReader(nil) }}

// finish writes plain to z and so to a buffer: it accepts every write.
func finish(z io.WriteCloser, plain []byte) {
	if _, err := z.Write(plain); err != nil {
		panic(err)
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
}

// read returns the content of r, which decompresses data.
func read(r io.Reader, data []byte, most int) ([]byte, error) {
	plain := bytes.NewBuffer(make([]byte, 0, 4*len(data)+bytes.MinRead))
	_, err := plain.ReadFrom(io.LimitReader(r, int64(most)+1))
	switch {
	case err != nil:
		return nil, err
	case plain.Len() > most:
		return nil, fmt.Errorf("more than %d bytes once decompressed", most)
	}
	return plain.Bytes(), nil
}
