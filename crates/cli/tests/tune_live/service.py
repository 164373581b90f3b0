"""A service of one request a time: each costs CPU, and is answered on its connection. With a file it costs 1 ms, and a tenth more
while the file says 0."""
import socket, sys, threading, time

cost = 0.0003

def look(file):
    global cost
    while True:
        with open(file) as text:
            cost = 0.0011 if text.read().strip() == "0" else 0.001
        time.sleep(0.02)

def serve(connection):
    with connection:
        while connection.recv(64):
            until = time.thread_time() + cost
            while time.thread_time() < until:
                pass
            connection.sendall(b"answer\n")

listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
if len(sys.argv) > 2:
    threading.Thread(target=look, args=(sys.argv[2],), daemon=True).start()
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
