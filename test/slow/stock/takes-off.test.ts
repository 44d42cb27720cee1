import { tryEveryOrder } from './every-order.ts';

tryEveryOrder('takes-off');
