// Command client waits in a line as an app does: it asks for JSON, carries its
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
		var said struct {
			Vestibule struct {
				State                                           string
				PeopleAhead, WaitTimeSeconds, RetryAfterSeconds int
			}
		}
		if json.Unmarshal(body, &said) != nil || said.Vestibule.State == "" {
			fmt.Printf("%s", body) // the site itself
			return
		}
		log.Printf("%s: %d ahead, about %d s", said.Vestibule.State, said.Vestibule.PeopleAhead, said.Vestibule.WaitTimeSeconds)
		time.Sleep(time.Duration(max(said.Vestibule.RetryAfterSeconds, 1)) * time.Second)
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
