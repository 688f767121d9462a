// What all peers in Go have in common: they are told on standard input what to do, a line at a time.
package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A library.
type adapter interface {
	// Whether it got the lock, which it asks for once.
	attempt(name string, ttl time.Duration) (bool, error)
	release(name string) error
	extend(name string, ttl time.Duration) error
}

// One client for each node.
func clients() []*redis.Client {
	var all []*redis.Client
	for _, address := range os.Args[1:] {
		all = append(all, redis.NewClient(&redis.Options{Addr: address}))
	}
	return all
}

// Does what it is told until the input ends. Counters are on the first node.
func serve(it adapter, counters *redis.Client) {
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		reply, err := obey(it, counters, strings.Fields(orders.Text()))
		if err != nil {
			reply = "failed " + err.Error()
		}
		fmt.Println(strings.ReplaceAll(reply, "\n", " "))
	}
}

func acquire(it adapter, name string, wait, ttl time.Duration) (bool, error) {
	until := time.Now().Add(wait)
	for {
		got, err := it.attempt(name, ttl)
		if got || err != nil || !time.Now().Before(until) {
			return got, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Reads, waits and writes under the lock, which nothing else protects.
func count(it adapter, counters *redis.Client, name, counter string, turns int, ttl time.Duration) (string, error) {
	contended := 0
	for turn := 0; turn < turns; turn++ {
		got, err := acquire(it, name, 0, ttl)
		if err == nil && !got {
			contended++
			got, err = acquire(it, name, time.Minute, ttl)
		}
		if err != nil || !got {
			return "failed not within a minute", err
		}
		value, _ := counters.Get(context.Background(), counter).Int()
		time.Sleep(time.Duration(rand.Intn(3000)) * time.Microsecond)
		if err := counters.Set(context.Background(), counter, value+1, 0).Err(); err != nil {
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

func obey(it adapter, counters *redis.Client, words []string) (string, error) {
	switch words[0] {
	case "acquire":
		got, err := acquire(it, words[1], ms(words[2]), ms(words[3]))
		if got {
			return "held", err
		}
		return "busy", err
	case "release":
		return "released", it.release(words[1])
	case "extend":
		return "extended", it.extend(words[1], ms(words[2]))
	case "release-lost":
		if err := it.release(words[1]); err != nil {
			return "refused " + strings.ReplaceAll(err.Error(), "\n", " "), nil
		}
		return "released", nil
	case "count":
		turns, _ := strconv.Atoi(words[3])
		return count(it, counters, words[1], words[2], turns, ms(words[4]))
	}
	return "failed no such order", nil
}
