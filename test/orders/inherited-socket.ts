import { startReceiver } from './start-receiver.ts';

// Runs a receiver on the socket that the parent process opened as descriptor 3, until standard input ends.
const { url, receiver } = await startReceiver({ listenFd: 3 });
process.stdout.write(`${url}\n`);
process.stdin.resume().on('end', () => void receiver.close());
