// bsm/redislock, on one node.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
)

type peer struct {
	client *redislock.Client
	held   map[string]*redislock.Lock
}

func main() {
	node := clients()[0]
	serve(&peer{redislock.New(node), map[string]*redislock.Lock{}}, node)
}

func (it *peer) attempt(name string, ttl time.Duration) (bool, error) {
	lock, err := it.client.Obtain(context.Background(), name, ttl, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	it.held[name] = lock
	return true, nil
}

func (it *peer) release(name string) error {
	lock := it.held[name]
	delete(it.held, name)
	return lock.Release(context.Background())
}

func (it *peer) extend(name string, ttl time.Duration) error {
	return it.held[name].Refresh(context.Background(), ttl, nil)
}
