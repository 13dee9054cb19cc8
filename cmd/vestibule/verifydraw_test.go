package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"vestibule/internal/draw"
	clock "vestibule/internal/fleet"
)

// BenchmarkReceipts holds a million receipts, of which every thousandth is forged, against a
// record. The goal is 60 s, all forged ones found, and no other.
func BenchmarkReceipts(b *testing.B) {
	const receipts, every = 1_000_000, 1000
	closes := time.Date(2026, 12, 1, 9, 59, 30, 0, time.UTC)
	var secret draw.Secret
	rand.Read(secret[:])
	record := &draw.Record{
		Algorithm: draw.Algorithm, Room: "room", Event: "event", Commit: secret.Commit(), Committed: closes.Add(-time.Hour), Closes: closes, Secret: draw.Hash(secret), Entrants: receipts,
	}
	text, err := draw.EncodeRecord(record)
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	files := []string{filepath.Join(dir, "record.json"), filepath.Join(dir, "receipts.json")}
	if err := os.WriteFile(files[0], text, 0o600); err != nil {
		b.Fatal(err)
	}
	f, err := os.Create(files[1])
	if err != nil {
		b.Fatal(err)
	}
	out, d := bufio.NewWriter(f), record.Draw()
	for i := range receipts {
		var id [8]byte
		rand.Read(id[:])
		r := draw.Receipt{Ticket: draw.Ticket(binary.BigEndian.Uint64(id[:])), Joined: closes.Add(-time.Duration(1+i) * time.Millisecond)}
		place := d.Place(uint64(r.Ticket), clock.TimeOf(r.Joined), 0)
		if i%every == 0 {
			place--
		}
		r.Place = time.UnixMilli(int64(place)).UTC()
		line, err := json.Marshal(r)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := out.Write(append(line, '\n')); err != nil {
			b.Fatal(err)
		}
	}
	if err := out.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var told bytes.Buffer
		if err := verifyDraw(files, &told, &told); err == nil {
			b.Fatal("nothing forged is found")
		}
		want := fmt.Sprintf("%d receipts: %d right, %d wrong\n", receipts, receipts-receipts/every, receipts/every)
		if !bytes.HasSuffix(told.Bytes(), []byte(want)) {
			b.Fatalf("%s, want %s", told.Bytes(), want)
		}
	}
}
