package edge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"vestibule/internal/edge/gate"
	"vestibule/internal/edge/origin"
)

// This file is Envoy's gRPC form of the decision service, ext_authz (envoy.service.auth.v3.Authorization): a unary
// call, so one message each way with a five-byte prefix, over the HTTP/2 of net/http. It reads and writes only a few
// fields of the messages. A test calls it with Envoy's own types and another client.

const (
	checkPath = "/envoy.service.auth.v3.Authorization/Check"
	grpcType  = "application/grpc"

	// maxCheck bounds a question, in bytes: Envoy accepts headers of 60 KiB and sends them at most twice. The
	// visitor's body must not be sent with it.
	maxCheck = 256 << 10
)

// gRPC status codes.
const (
	grpcOK              = 0
	grpcInvalidArgument = 3
	grpcDenied          = 7
	grpcExhausted       = 8
)

var errTooLong = fmt.Errorf("message: must be %d bytes at most", maxCheck)

// readMessage reads the single message of a call.
func readMessage(body io.Reader) ([]byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(body, head[:]); err != nil {
		return nil, fmt.Errorf("message: %w", err)
	}
	if head[0] != 0 {
		return nil, errors.New("message: must not be compressed")
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxCheck {
		return nil, errTooLong
	}
	message := make([]byte, n)
	if _, err := io.ReadFull(body, message); err != nil {
		return nil, fmt.Errorf("message: %w", err)
	}
	if more, err := body.Read(head[:1]); more > 0 || err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.New("message: must be the only one")
	}
	return message, nil
}

// checked holds the fields of a CheckRequest that describe the visitor's request.
type checked struct {
	source, method, path, host, scheme string
	size                               int64
	header                             http.Header
}

// errMessage is the error of a message that cannot be decoded.
var errMessage = errors.New("message: must be a CheckRequest")

// fields calls f with the number of each field of a message, and with its content (strings and messages) or its value
// (numbers).
func fields(message []byte, f func(field protowire.Number, content []byte, value uint64) error) error {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errMessage
		}
		message = message[n:]
		var content []byte
		var value uint64
		switch kind {
		case protowire.BytesType:
			content, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(message)
		default:
			n = protowire.ConsumeFieldValue(field, kind, message)
			field = 0 // an unused field
		}
		if n < 0 {
			return errMessage
		}
		message = message[n:]
		if err := f(field, content, value); err != nil {
			return err
		}
	}
	return nil
}

// inside calls f with each field of the nested message at a field path.
func inside(
	message []byte, way []protowire.Number, f func(field protowire.Number, content []byte, value uint64) error,
) error {
	if len(way) == 0 {
		return fields(message, f)
	}
	return fields(message, func(field protowire.Number, content []byte, _ uint64) error {
		if field != way[0] {
			return nil
		}
		return inside(content, way[1:], f)
	})
}

// Field paths to CheckRequest.attributes.source.address.socket_address and CheckRequest.attributes.request.http.
var toSource, toHTTP = []protowire.Number{1, 1, 1, 1}, []protowire.Number{1, 4, 2}

func (c *checked) read(message []byte) error {
	err := inside(message, toSource, func(field protowire.Number, content []byte, _ uint64) error {
		if field == 2 { // address
			c.source = string(content)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var headers, raw [][2]string
	err = inside(message, toHTTP, func(field protowire.Number, content []byte, value uint64) error {
		switch int(field) {
		case 2:
			c.method = string(content)
		case 3: // headers, a map
			line, err := nameAndValue(content, 2)
			headers = append(headers, line)
			return err
		case 4:
			c.path = string(content)
		case 5:
			c.host = string(content)
		case 6:
			c.scheme = string(content)
		case 9:
			c.size = int64(value) //nolint:gosec // -1 stands for unknown
		}
		return nil
	})
	if err != nil {
		return err
	}
	// header_map: the same headers, each line as received.
	err = inside(message, append(slices.Clone(toHTTP), 13), func(field protowire.Number, content []byte, _ uint64) error {
		if field != 1 {
			return nil
		}
		line, err := nameAndValue(content, 2)
		if line[1] == "" && err == nil {
			line, err = nameAndValue(content, 3) // raw_value
		}
		raw = append(raw, line)
		return err
	})
	if err != nil {
		return err
	}
	if raw != nil {
		headers = raw
	}
	c.header = http.Header{}
	for _, line := range headers {
		c.header.Add(line[0], line[1])
	}
	return nil
}

// nameAndValue reads a name and the value in field second beside it.
func nameAndValue(content []byte, second int) (line [2]string, err error) {
	return line, fields(content, func(field protowire.Number, content []byte, _ uint64) error {
		switch int(field) {
		case 1:
			line[0] = string(content)
		case second:
			line[1] = string(content)
		}
		return nil
	})
}

// Field numbers of the response, and the header append actions.
const (
	fieldStatus, fieldDenied, fieldOK               = 1, 2, 3
	fieldDeniedStatus, fieldDeniedBody              = 1, 3
	fieldHeaders, fieldRemove, fieldResponse        = 2, 5, 6
	fieldHeader, fieldAppend, fieldAction           = 1, 2, 3
	overwrites                               uint64 = 2
)

// allowed encodes an admission: headers for the visitor's answer, the proof for the site, and the visitor's headers
// to remove.
func allowed(o *gate.Outcome, header http.Header) []byte {
	var ok []byte
	proof := o.Proof()
	if proof != "" {
		ok = message(ok, fieldHeaders, option(gate.ProofHeader, proof, false))
	}
	for _, name := range stripped(header) {
		if proof == "" || name != gate.ProofHeader {
			ok = text(ok, fieldRemove, strings.ToLower(name))
		}
	}
	tickets, caching := siteCaching(o)
	for _, t := range tickets {
		ok = message(ok, fieldResponse, option(t.Name, t.Value, true))
	}
	if caching != "" {
		ok = message(ok, fieldResponse, option("Cache-Control", caching, false))
	}
	return message(status(grpcOK), fieldOK, ok)
}

// stripped returns the names of headers that a site never gets from a visitor. Envoy itself writes X-Forwarded-For
// and X-Forwarded-Proto.
func stripped(header http.Header) (out []string) {
	left := header.Clone()
	ownRules.Strip(left)
	for name := range header {
		if _, stays := left[name]; !stays && !strings.HasPrefix(name, ":") && name != "X-Forwarded-For" &&
			name != "X-Forwarded-Proto" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

var ownRules = origin.NewHeaderRules(nil, nil)

// denied encodes a denial with the visitor's answer.
func denied(o *gate.Outcome) []byte {
	d := message(nil, fieldDeniedStatus, number(nil, 1, uint64(o.Status))) //nolint:gosec // of HTTP
	for _, h := range o.Header {
		d = message(d, fieldHeaders, option(h.Name, h.Value, true))
	}
	return message(status(grpcDenied), fieldDenied, text(d, fieldDeniedBody, string(o.Body)))
}

// status begins a CheckResponse with a gRPC status code.
func status(code uint64) []byte { return message(nil, fieldStatus, number(nil, 1, code)) }

// option encodes a HeaderValueOption: a header that is added, or replaces others.
func option(name, value string, added bool) []byte {
	b := message(nil, fieldHeader, text(text(nil, 1, name), 2, value))
	if added {
		return message(b, fieldAppend, number(nil, 1, 1))
	}
	return number(b, fieldAction, overwrites)
}

func message(b []byte, field protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), content)
}

func text(b []byte, field protowire.Number, s string) []byte { return message(b, field, []byte(s)) }

func number(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}
