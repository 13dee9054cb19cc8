// Package beacon verifies rounds of drand's quicknet offline. A round is a threshold signature of the League of
// Entropy over the round's number, published every three seconds and unpredictable before.
package beacon

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/cloudflare/circl/sign/bls"

	"vestibule/internal/core/draw"
)

// Quicknet is drand's chain of unchained rounds; the constants are from its own description.
const (
	quicknet       = "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971"
	quicknetKey    = "83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d1064510d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a"
	quicknetFirst  = 1692803367 // Unix second of round 1
	quicknetPeriod = 3          // seconds
)

// Chain returns the hash of quicknet's chain, as used in records.
func Chain() (h draw.Hash) {
	if err := h.UnmarshalText([]byte(quicknet)); err != nil {
		panic(err) // a constant
	}
	return h
}

// RoundAfter returns the first round published after t.
func RoundAfter(t time.Time) uint64 {
	if t.Unix() < quicknetFirst {
		return 1
	}
	return uint64(t.Unix()-quicknetFirst)/quicknetPeriod + 2
}

// Verify returns nil if b is the first round published after the close of entries.
func Verify(b *draw.Beacon, closes time.Time) error {
	if b.Chain != Chain() {
		return fmt.Errorf("chain: must be that of quicknet, %s", quicknet)
	}
	if want := RoundAfter(closes); b.Round != want {
		return fmt.Errorf("round: must be %d, the first after closes, got %d", want, b.Round)
	}
	raw, err := hex.DecodeString(quicknetKey)
	if err != nil {
		return err
	}
	var key bls.PublicKey[bls.KeyG2SigG1]
	if err := key.UnmarshalBinary(raw); err != nil {
		return err
	}
	var round [8]byte
	binary.BigEndian.PutUint64(round[:], b.Round)
	message := sha256.Sum256(round[:])
	if !bls.Verify(&key, message[:], b.Signature) {
		return errors.New("signature: not valid for this round of quicknet")
	}
	return nil
}
