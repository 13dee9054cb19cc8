package testkit

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
)

// ReadPush decrypts a message of Web Push as a browser with key and its authentication secret does (RFC 8291): one record,
// without padding. It derives the keys by itself: package push must not be tested with its own derivation.
func ReadPush(body []byte, key *ecdh.PrivateKey, auth []byte) ([]byte, error) {
	if len(body) < 87 {
		return nil, errors.New("a message has at least 87 bytes")
	}
	salt, sender := body[:16], body[21:86]
	public, err := ecdh.P256().NewPublicKey(sender)
	if err != nil {
		return nil, err
	}
	shared, err := key.ECDH(public)
	if err != nil {
		return nil, err
	}
	input, err := hkdf.Key(sha256.New, shared, auth, "WebPush: info\x00"+string(key.PublicKey().Bytes())+string(sender),
		32)
	if err != nil {
		return nil, err
	}
	cek, err := hkdf.Key(sha256.New, input, salt, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, err
	}
	nonce, err := hkdf.Key(sha256.New, input, salt, "Content-Encoding: nonce\x00", 12)
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
	text, err := aead.Open(nil, nonce, body[86:], nil)
	if err != nil {
		return nil, err
	}
	text, ends := bytes.CutSuffix(text, []byte{2})
	if !ends {
		return nil, errors.New("the last record has no end")
	}
	return text, nil
}
