"""Clients at a rate that varies: each sends a request, and the next one after its answer."""
import math, random, socket, sys, threading, time

def ask(host, port, rate):
    while True:
        try:
            with socket.create_connection((host, port), 5) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.settimeout(10)
                while True:
                    wave = 1.5 + math.sin(time.time() / 7)
                    time.sleep(random.expovariate(rate * wave / 1.5))
                    connection.sendall(b"request\n")
                    if not connection.recv(64):
                        break
        except OSError:
            time.sleep(0.1)

host, port, clients, rate = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
for _ in range(clients):
    threading.Thread(target=ask, args=(host, port, rate), daemon=True).start()
time.sleep(3600)
