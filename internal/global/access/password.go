package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // RFC 6238; authenticators know nothing else
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/argon2"
)

// Parameters of argon2id, as OWASP recommends: 19 MiB, two passes.
const (
	argonMemory  = 19 << 10 // KiB
	argonPasses  = 2
	argonThreads = 1
	argonSalt    = 16
	argonKey     = 32
)

// hasher computes password hashes, a few at a time: each takes 19 MiB and tens of milliseconds. Beyond a short queue it
// refuses at once.
type hasher struct {
	running chan struct{}
	waiting chan struct{} // with those that run
}

const (
	hashesAtOnce = 2
	maxWaiting   = 16
)

func newHasher() hasher {
	return hasher{make(chan struct{}, hashesAtOnce), make(chan struct{}, maxWaiting)}
}

// errBusy means that too many passwords are being checked.
var errBusy = errors.New("too many logins at the same time: try again in a moment")

func (h hasher) hash(ctx context.Context, password string, salt []byte) ([]byte, error) {
	select {
	case h.waiting <- struct{}{}:
		defer func() { <-h.waiting }()
	default:
		return nil, errBusy
	}
	select {
	case h.running <- struct{}{}:
		defer func() { <-h.running }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return argon2.IDKey([]byte(password), salt, argonPasses, argonMemory, argonThreads, argonKey), nil
}

// encode returns the stored form of a password.
func (h hasher) encode(ctx context.Context, password string) (string, error) {
	salt := make([]byte, argonSalt)
	if _, err := rand.Read(salt); err != nil {
		return "", err
	}
	sum, err := h.hash(ctx, password, salt)
	if err != nil {
		return "", err
	}
	b64 := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s",
		argon2.Version, argonMemory, argonPasses, argonThreads, b64(salt), b64(sum)), nil
}

// check reports whether a password has a stored form. It takes as long for an unusable one.
func (h hasher) check(ctx context.Context, password, stored string) (bool, error) {
	parts := strings.Split(stored, "$")
	salt, want := make([]byte, argonSalt), []byte(nil)
	if len(parts) == 6 {
		var err error
		if salt, err = base64.RawStdEncoding.DecodeString(parts[4]); err != nil {
			return false, fmt.Errorf("stored password: %w", err)
		}
		if want, err = base64.RawStdEncoding.DecodeString(parts[5]); err != nil {
			return false, fmt.Errorf("stored password: %w", err)
		}
	}
	sum, err := h.hash(ctx, password, salt)
	return err == nil && len(want) == argonKey && same(string(sum), string(want)), err
}

const (
	minPassword = 12
	maxPassword = 256 // bytes
)

// checkPassword returns the rule that a new password breaks, "" for none.
func checkPassword(name, password string) string {
	switch {
	case len([]rune(password)) < minPassword:
		return fmt.Sprintf("The password must have at least %d characters.", minPassword)
	case len(password) > maxPassword:
		return fmt.Sprintf("The password must have at most %d bytes.", maxPassword)
	case strings.EqualFold(password, name), strings.Count(password, password[:1]) == len(password):
		return "The password is too easy to guess."
	}
	return ""
}

// totpStep is the time of one code (RFC 6238).
const totpStep = 30 * time.Second

var base32Plain = base32.StdEncoding.WithPadding(base32.NoPadding)

func newTOTP() string {
	secret := make([]byte, 20)
	if _, err := rand.Read(secret); err != nil {
		panic(err) // documented never to happen
	}
	return base32Plain.EncodeToString(secret)
}

// totp returns the code of a step.
func totp(secret string, step int64) (string, error) {
	k, err := base32Plain.DecodeString(secret)
	if err != nil {
		return "", fmt.Errorf("second factor: %w", err)
	}
	mac := hmac.New(sha1.New, k)
	if err := binary.Write(mac, binary.BigEndian, step); err != nil {
		return "", err
	}
	sum := mac.Sum(nil)
	at := sum[len(sum)-1] & 0xf
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(sum[at:])&0x7fffffff%1_000_000), nil
}

// totpOf returns the step of a code, which may be one early or late; ok is false for a wrong one, or one that is not
// newer than last.
func totpOf(secret, code string, now time.Time, last int64) (step int64, ok bool) {
	present := now.Unix() / int64(totpStep/time.Second)
	for step := present - 1; step <= present+1; step++ {
		if want, err := totp(secret, step); err == nil && same(want, code) {
			return step, step > last
		}
	}
	return 0, false
}

const recoveryCodes = 10

// newRecovery returns recovery codes and their stored forms.
func newRecovery() (codes, hashes []string) {
	for range recoveryCodes {
		text := strings.ToLower(rand.Text()[:16])
		codes = append(codes, text[:4]+"-"+text[4:8]+"-"+text[8:12]+"-"+text[12:])
		hashes = append(hashes, digest(text))
	}
	return codes, hashes
}

// plainCode removes what people add to a code.
func plainCode(code string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(strings.TrimSpace(code)))
}
