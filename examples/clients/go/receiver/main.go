// A receiver of webhooks that takes its time, in Go: it answers 202 at once, works, and returns the task by SQL (pgx).
//
//	python -m taskq_pg dispatch --url http://127.0.0.1:8080/ --action render --with-token --lease '10 minutes'
//	PGHOST=... PGDATABASE=... TASKQ_WEBHOOK_SECRET=whsec_... receiver 127.0.0.1:8080
//
// If this process dies, the task comes back when its lease is over. Each request is signed as Standard Webhooks say.
package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v4/pgxpool"
)

// What is sent with --with-token, as far as it is used here.
type task struct {
	ID     string          `json:"task_id"`
	Token  string          `json:"token"`
	Action string          `json:"action"`
	Body   json.RawMessage `json:"body"`
	Try    int             `json:"num_tries"`
}

type receiver struct {
	key  []byte
	pool *pgxpool.Pool
}

// signed tells whether the request comes from one who has the secret, within the last five minutes.
func (r receiver) signed(header http.Header, content []byte) bool {
	id, at := header.Get("webhook-id"), header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || math.Abs(time.Since(time.Unix(seconds, 0)).Minutes()) > 5 {
		return false
	}
	mac := hmac.New(sha256.New, r.key)
	fmt.Fprintf(mac, "%s.%s.%s", id, at, content)
	wanted := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for _, one := range strings.Fields(header.Get("webhook-signature")) {
		if hmac.Equal([]byte(one), []byte(wanted)) {
			return true
		}
	}
	return false
}

func (r receiver) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	content, err := io.ReadAll(http.MaxBytesReader(answer, request.Body, 10<<20))
	var received task
	switch {
	case err != nil:
		http.Error(answer, err.Error(), http.StatusRequestTimeout) // it is tried again
	case !r.signed(request.Header, content):
		http.Error(answer, "the signature does not fit", http.StatusUnauthorized) // it aborts
	case json.Unmarshal(content, &received) != nil || received.Token == "":
		http.Error(answer, "no task with a token", http.StatusBadRequest)
	default:
		go r.perform(received)
		answer.WriteHeader(http.StatusAccepted)
	}
}

// perform works and returns the task. A token that is void by then is another try's: this result is dropped.
func (r receiver) perform(received task) {
	ctx := context.Background()
	code, status := "completed", (*string)(nil)
	result, err := work(received.Body)
	if err != nil {
		text := err.Error()
		code, status, result = "pending", &text, nil // the back-off of the task decides when it is tried again
	}
	const query = "SELECT taskq.return_task($1, $2::text::uuid, $3, $4, result => $5::text::jsonb)"
	if _, err := r.pool.Exec(ctx, query, received.ID, received.Token, code, status, result); err != nil {
		log.Printf("%s: not returned: %v", received.ID, err)
		return
	}
	log.Printf("%s: %s on try %d", received.ID, code, received.Try)
}

// work is what takes long.
func work(body json.RawMessage) (*string, error) {
	var job struct {
		Pages int `json:"pages"`
	}
	if err := json.Unmarshal(body, &job); err != nil || job.Pages < 1 {
		return nil, fmt.Errorf("nothing to render in %s", body)
	}
	time.Sleep(time.Duration(job.Pages) * 10 * time.Millisecond)
	text := fmt.Sprintf(`{"rendered": %d}`, job.Pages)
	return &text, nil
}

func main() {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(os.Getenv("TASKQ_WEBHOOK_SECRET"), "whsec_"))
	if len(os.Args) != 2 || err != nil || len(key) == 0 {
		log.Fatal("TASKQ_WEBHOOK_SECRET=whsec_... receiver ADDRESS")
	}
	pool, err := pgxpool.Connect(context.Background(), "")
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(os.Args[1], receiver{key, pool}))
}
