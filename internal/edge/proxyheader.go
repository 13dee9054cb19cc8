package edge

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pires/go-proxyproto"

	"vestibule/internal/edge/clientaddr"
)

// A load balancer that forwards connections, not requests, sends each visitor's address first: the PROXY protocol.
// The header is believed only from listed addresses, and there a connection without one is refused. Framing and rules
// are here; the library parses the header.

// proxyHeaders holds the rules for all connections of an edge. It is safe for concurrent use.
type proxyHeaders struct {
	trusted clientaddr.Proxies
	ignore  bool          // of unlisted peers: headers are read and ignored
	wait    time.Duration // for a whole header
	metrics *metrics
	log     *slog.Logger
	logged  [headerResults]atomic.Bool // whether the first fault of a kind was logged
}

// newProxyHeaders returns the rules, nil for none.
func newProxyHeaders(c *Config, m *metrics, log *slog.Logger) (*proxyHeaders, error) {
	if len(c.ProxyProtocol.Trusted) == 0 {
		return nil, nil
	}
	trusted, err := clientaddr.ParseProxies(c.ProxyProtocol.Trusted)
	if err != nil {
		return nil, fmt.Errorf("proxy_protocol.trusted: %w", err)
	}
	return &proxyHeaders{
		trusted: trusted, ignore: c.ProxyProtocol.Untrusted == headersIgnored, wait: c.Timeouts.Header, metrics: m, log: log,
	}, nil
}

// preface is the part of a connection before the visitor's first byte. The connection's own goroutine reads it with
// the first call for a byte or an address.
type preface struct {
	rules *proxyHeaders
	once  sync.Once
	from  net.Addr // the visitor's, nil for the peer's own
	rest  []byte   // bytes of the visitor that were read with it
	err   error
}

// read reads the preface of a connection, once.
func (p *preface) read(c *net.TCPConn) {
	p.once.Do(func() {
		peer, ok := c.RemoteAddr().(*net.TCPAddr)
		listed := ok && p.rules.trusted.Trusts(peer.AddrPort().Addr().Unmap())
		if p.err = c.SetReadDeadline(time.Now().Add(p.rules.wait)); p.err != nil {
			return
		}
		header, rest, err := readHeader(c, listed)
		result := headerNone
		switch {
		case errors.Is(err, io.EOF): // as from balancers that only probe the port
		case err != nil:
			result = headerFault(err)
		case header == nil:
			p.rest = rest
		case !listed && p.rules.ignore:
			result = headerIgnored
		case !listed:
			result, err = headerRefused, errNotListed
		case header.Command.IsLocal():
			result = headerLocal
		default:
			result, p.from = headerProxied, header.SourceAddr
		}
		p.rules.count(result, peer, err)
		if err != nil {
			p.err = io.EOF // net/http then closes without an answer
			return
		}
		p.err = c.SetReadDeadline(time.Time{})
	})
}

var (
	errNoHeader  = errors.New("a PROXY header is required of this address, and there is none")
	errMalformed = errors.New("a PROXY header that cannot be read")
	errNotListed = errors.New("a PROXY header of an address that proxy_protocol.trusted does not name")
)

func headerFault(err error) int {
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return headerLate
	}
	if errors.Is(err, errMalformed) {
		return headerMalformed
	}
	return headerMissing
}

// count counts the beginning of a connection. The first fault of each kind is logged as a warning: with a balancer
// configured differently from the edge, no visitor is served.
func (x *proxyHeaders) count(result int, peer net.Addr, err error) {
	x.metrics.proxyHeaders[result].Inc()
	if err == nil || errors.Is(err, io.EOF) {
		return
	}
	level := slog.LevelDebug
	if x.logged[result].CompareAndSwap(false, true) {
		level = slog.LevelWarn
	}
	x.log.Log(context.Background(), level, "connection closed for its PROXY header",
		slog.Any("peer", peer), slog.Any("error", err))
}

// Signatures of headers, and bounds of their lengths in bytes.
var (
	signatureV1 = []byte("PROXY ")
	signatureV2 = proxyproto.SIGV2
)

const (
	maxHeaderV1  = 107
	headerV2Head = 16      // signature, version and command, family, length
	maxHeaderV2  = 4 << 10 // addresses and a balancer's additions, such as a certificate
)

// readHeader reads a PROXY header, version 1 or 2, and no byte after it. If there is none, and none is required, it
// returns the bytes read so far. Errors are errNoHeader, errMalformed, and those of r: io.EOF if r ended before it
// was clear whether there is a required header.
func readHeader(r io.Reader, required bool) (header *proxyproto.Header, rest []byte, err error) {
	head := make([]byte, 0, len(signatureV2)) // no longer than the shortest header
	for len(head) < cap(head) && mayBeHeader(head) {
		n, err := r.Read(head[len(head):cap(head)])
		head = head[:len(head)+n]
		if err != nil && len(head) < cap(head) {
			if required || !errors.Is(err, io.EOF) {
				return nil, nil, err
			}
			return nil, head, nil // the next read returns the same error
		}
	}
	var raw []byte
	switch {
	case bytes.Equal(head, signatureV2):
		raw, err = frameV2(r, head)
	case bytes.HasPrefix(head, signatureV1):
		raw, err = frameV1(r, head)
	case required:
		return nil, nil, errNoHeader
	default:
		return nil, head, nil
	}
	if err != nil {
		return nil, nil, err
	}
	header, err = parseHeader(raw)
	return header, nil, err
}

// mayBeHeader reports whether head may be the beginning of a header.
func mayBeHeader(head []byte) bool {
	return bytes.HasPrefix(signatureV2, head) || bytes.HasPrefix(signatureV1, head) || bytes.HasPrefix(head, signatureV1)
}

// frameV1 reads the rest of a line.
func frameV1(r io.Reader, line []byte) ([]byte, error) {
	for b := make([]byte, 1); !bytes.HasSuffix(line, []byte("\r\n")); line = append(line, b...) {
		if len(line) == maxHeaderV1 || bytes.ContainsAny(line, "\n") {
			return nil, errMalformed
		}
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, cutShort(err)
		}
	}
	return line, nil
}

// frameV2 reads the number of bytes that a header announces.
func frameV2(r io.Reader, head []byte) ([]byte, error) {
	raw := append(head, make([]byte, headerV2Head-len(head))...)
	if _, err := io.ReadFull(r, raw[len(head):]); err != nil {
		return nil, cutShort(err)
	}
	length := int(raw[14])<<8 | int(raw[15])
	if length > maxHeaderV2 {
		return nil, errMalformed
	}
	raw = append(raw, make([]byte, length)...)
	if _, err := io.ReadFull(r, raw[headerV2Head:]); err != nil {
		return nil, cutShort(err)
	}
	return raw, nil
}

// cutShort converts the end of a connection within a header to its error.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errMalformed
	}
	return err
}

// parseHeader parses a whole header. It accepts less than the library: only TCP connections, and of version 1 only
// lines with exactly the specified words.
func parseHeader(raw []byte) (*proxyproto.Header, error) {
	in := bytes.NewReader(raw)
	buffered := bufio.NewReaderSize(in, headerV2Head+maxHeaderV2)
	h, err := proxyproto.Read(buffered)
	if err != nil || in.Len() > 0 || buffered.Buffered() > 0 {
		return nil, errMalformed
	}
	switch {
	case h.Command.IsLocal():
		return h, nil
	case h.TransportProtocol != proxyproto.TCPv4 && h.TransportProtocol != proxyproto.TCPv6:
		return nil, errMalformed
	case h.Version == 1 && bytes.Count(raw, []byte(" ")) != 5:
		return nil, errMalformed
	}
	return h, nil
}
