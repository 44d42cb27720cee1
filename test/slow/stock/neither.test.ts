import { tryEveryOrder } from './every-order.ts';

tryEveryOrder('neither');
