package beacon

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/lab/testkit"
)

// Round 657413 of quicknet, as published.
const (
	round      = 657413
	signature  = "b713718a38ae728dfd477991af2822e08d2f305e47718cef9f7848ce4050e7be41076862b98fad56e91a6b85b89cd97b"
	randomness = "fc1873a13f3545aeade8401532ef5519920652eee6b0d2b19ca12643b87b3587"
)

func TestARealRoundIsVerifiedAndNoOther(t *testing.T) {
	sig := testkit.Must(hex.DecodeString(signature))(t)
	b := &draw.Beacon{Chain: Chain(), Round: round, Signature: sig}
	closes := published(round).Add(-time.Second)
	if err := Verify(b, closes); err != nil {
		t.Error(err)
	}
	if got := sha256.Sum256(sig); hex.EncodeToString(got[:]) != randomness {
		t.Errorf("the randomness is %x", got)
	}
	for name, change := range map[string]func(*draw.Beacon){
		"another round":    func(b *draw.Beacon) { b.Round++ },
		"another chain":    func(b *draw.Beacon) { b.Chain[0]++ },
		"no signature":     func(b *draw.Beacon) { b.Signature = nil },
		"half a signature": func(b *draw.Beacon) { b.Signature = sig[:24] },
		"a changed bit":    func(b *draw.Beacon) { b.Signature = append([]byte(nil), sig...); b.Signature[40] ^= 1 },
	} {
		forged := *b
		change(&forged)
		if Verify(&forged, closes) == nil {
			t.Errorf("%s is verified", name)
		}
		if Verify(&forged, closes.Add(quicknetPeriod*time.Second)) == nil {
			t.Errorf("%s is verified", name)
		}
	}
	for _, at := range []time.Time{closes.Add(-quicknetPeriod * time.Second), published(round)} {
		if Verify(b, at) == nil {
			t.Errorf("it is verified for entries that closed at %v: another round was the first behind that", at)
		}
	}
}

func TestRoundsComeAfterTheClose(t *testing.T) {
	for _, at := range []time.Time{
		time.Unix(quicknetFirst-10, 0), time.Unix(quicknetFirst, 0),
		time.Unix(quicknetFirst+1, 999e6), time.Unix(quicknetFirst+3, 0), time.Unix(1795378400, 5),
	} {
		n := RoundAfter(at)
		if !published(n).After(at) || n > 1 && published(n-1).After(at) {
			t.Errorf("after %v comes round %d, of %v", at, n, published(n))
		}
	}
}

// published returns when a round is published.
func published(round uint64) time.Time {
	return time.Unix(quicknetFirst+int64(round-1)*quicknetPeriod, 0)
}
