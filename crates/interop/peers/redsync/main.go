// Redsync, on a majority of all nodes. It is told on standard input what to do, a line at a time.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
)

type peer struct {
	counters *goredislib.Client
	sync     *redsync.Redsync
	held     map[string]*redsync.Mutex
}

func main() {
	var pools []redis.Pool
	it := peer{held: map[string]*redsync.Mutex{}}
	for _, address := range os.Args[1:] {
		client := goredislib.NewClient(&goredislib.Options{Addr: address})
		if it.counters == nil {
			it.counters = client
		}
		pools = append(pools, goredis.NewPool(client))
	}
	it.sync = redsync.New(pools...)
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		reply, err := it.obey(strings.Fields(orders.Text()))
		if err != nil {
			reply = "failed " + err.Error()
		}
		fmt.Println(strings.ReplaceAll(reply, "\n", " "))
	}
}

func (it *peer) acquire(name string, wait, ttl time.Duration) (bool, error) {
	until := time.Now().Add(wait)
	for {
		mutex := it.sync.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(1))
		err := mutex.TryLock()
		var taken *redsync.ErrTaken
		if err == nil {
			it.held[name] = mutex
			return true, nil
		} else if !errors.As(err, &taken) && !errors.Is(err, redsync.ErrFailed) {
			return false, err
		} else if !time.Now().Before(until) {
			return false, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (it *peer) release(name string) error {
	_, err := it.held[name].Unlock()
	delete(it.held, name)
	return err
}

func (it *peer) count(name, counter string, turns int, ttl time.Duration) (string, error) {
	contended := 0
	for turn := 0; turn < turns; turn++ {
		got, err := it.acquire(name, 0, ttl)
		if err == nil && !got {
			contended++
			got, err = it.acquire(name, time.Minute, ttl)
		}
		if err != nil || !got {
			return "failed not within a minute", err
		}
		value, _ := it.counters.Get(context.Background(), counter).Int()
		time.Sleep(time.Duration(rand.Intn(3000)) * time.Microsecond)
		if err := it.counters.Set(context.Background(), counter, value+1, 0).Err(); err != nil {
			return "", err
		}
		if err := it.release(name); err != nil {
			return "", err
		}
		time.Sleep(time.Duration(rand.Intn(3000)) * time.Microsecond)
	}
	return fmt.Sprint("counted ", contended), nil
}

func ms(text string) time.Duration {
	number, _ := strconv.Atoi(text)
	return time.Duration(number) * time.Millisecond
}

func (it *peer) obey(words []string) (string, error) {
	switch words[0] {
	case "acquire":
		got, err := it.acquire(words[1], ms(words[2]), ms(words[3]))
		if got {
			return "held", err
		}
		return "busy", err
	case "release":
		return "released", it.release(words[1])
	case "extend":
		_, err := it.held[words[1]].Extend()
		return "extended", err
	case "release-unheld":
		if _, err := it.sync.NewMutex(words[1], redsync.WithValue("never-held")).Unlock(); err != nil {
			return "refused an error", nil
		}
		return "released", nil
	case "count":
		turns, _ := strconv.Atoi(words[3])
		return it.count(words[1], words[2], turns, ms(words[4]))
	}
	return "failed no such order", nil
}
