// Package push is the core of notifications by Web Push: the messages of RFC 8291 and 8188, the tokens of RFC 8292, and
// the stored subscriptions of visitors. Everything is derived from one secret of the fleet.
package push

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
)

// Lengths in bytes.
const (
	PublicKey = 65 // of an uncompressed point on P-256
	Auth      = 16 // of the browser's authentication secret

	// MaxText is the longest text of a message. Push services take 4,096 bytes.
	MaxText = 2048

	recordSize = 4096
)

// Encrypt returns the body of a message with a text for the browser with these keys: one record of RFC 8188, with
// Content-Encoding aes128gcm. random gives a key and a salt, which must be used once.
func Encrypt(text, public, auth []byte, random io.Reader) ([]byte, error) {
	if len(text) > MaxText {
		return nil, errors.New("the text is too long")
	}
	key := make([]byte, 32)
	for {
		if _, err := io.ReadFull(random, key); err != nil {
			return nil, err
		}
		own, err := ecdh.P256().NewPrivateKey(key)
		if err != nil {
			continue // one in 2^32 is no key
		}
		var salt [16]byte
		if _, err := io.ReadFull(random, salt[:]); err != nil {
			return nil, err
		}
		return encrypt(text, public, auth, own, salt)
	}
}

func encrypt(text, public, auth []byte, own *ecdh.PrivateKey, salt [16]byte) ([]byte, error) {
	browser, err := ecdh.P256().NewPublicKey(public)
	if err != nil || len(auth) != Auth {
		return nil, errors.New("the keys of the subscription are not usable")
	}
	shared, err := own.ECDH(browser)
	if err != nil {
		return nil, err
	}
	sender := own.PublicKey().Bytes()
	derive := func(secret, salt []byte, info string, n int) (out []byte) {
		if err == nil {
			out, err = hkdf.Key(sha256.New, secret, salt, info, n)
		}
		return out
	}
	input := derive(shared, auth, "WebPush: info\x00"+string(public)+string(sender), 32)
	cek := derive(input, salt[:], "Content-Encoding: aes128gcm\x00", 16)
	nonce := derive(input, salt[:], "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(cek)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, 86+len(text)+17), salt[:]...)
	out = binary.BigEndian.AppendUint32(out, recordSize)
	out = append(append(out, byte(len(sender))), sender...)
	return aead.Seal(out, nonce, append(append([]byte(nil), text...), 2), nil), nil // 2 ends the last record
}
