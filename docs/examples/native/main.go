// Command native waits in a line as an app does: it asks for JSON, carries its
// ticket in a header, comes back when it is told to, and prints the site's own
// answer when its turn has come. It is called with the URL of the site.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"
)

func main() {
	ticket := "new" // any value asks for one
	for {
		r, err := http.NewRequest(http.MethodGet, os.Args[1], nil)
		if err != nil {
			log.Fatal(err)
		}
		r.Header.Set("Accept", "application/json, */*")
		r.Header.Set("Vestibule-Ticket", ticket)
		header, body, err := ask(r) // may take half a minute where the turn is near
		if err != nil {
			log.Print(err) // the place is kept for a while
			time.Sleep(5 * time.Second)
			continue
		}
		if t := header.Get("Vestibule-Ticket"); t != "" {
			ticket = t // always the newest; inside, too
		}
		var answer struct {
			Vestibule struct { // docs/WAITING-PAGE.md lists all fields
				State                                           string
				PeopleAhead, WaitTimeSeconds, RetryAfterSeconds int
				Counting, WaitTimeKnown                         bool
			}
		}
		if json.Unmarshal(body, &answer) != nil || answer.Vestibule.State == "" {
			fmt.Printf("%s", body) // the site itself
			return
		}
		v := &answer.Vestibule
		line := v.State
		if !v.Counting && v.PeopleAhead >= 0 {
			line += fmt.Sprintf(", %d ahead", v.PeopleAhead)
		}
		if v.WaitTimeKnown { // else 0 seconds means nothing
			line += fmt.Sprintf(", about %d s", v.WaitTimeSeconds)
		}
		log.Print(line)
		if v.RetryAfterSeconds == 0 {
			log.Fatal("the waiting room lets nobody in")
		}
		time.Sleep(time.Duration(v.RetryAfterSeconds) * time.Second)
	}
}

func ask(r *http.Request) (http.Header, []byte, error) {
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.Header, body, err
}
