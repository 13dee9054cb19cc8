package notify

import (
	"sync"
	"time"
)

// lateness is the age of the latest message of a minute, sent or not. It is safe for concurrent use.
type lateness struct {
	mu  sync.Mutex
	at  time.Time
	age time.Duration
}

// record records the age of a message.
func (l *lateness) record(now time.Time, age time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if age >= l.age || now.Sub(l.at) >= lagFor {
		l.at, l.age = now, age
	}
}

// longest returns the longest age of the last minute.
func (l *lateness) longest(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.at) >= lagFor {
		return 0
	}
	return l.age
}
