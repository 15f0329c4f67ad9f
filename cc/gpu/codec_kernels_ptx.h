// Made by `make ptx`.
#ifndef TF_BYTEPS_CC_GPU_CODEC_KERNELS_PTX_H_
#define TF_BYTEPS_CC_GPU_CODEC_KERNELS_PTX_H_

namespace byteps {

// SHA-256 of codec_kernels.cu: 7e372c8551a98ede92eaaf6c2ab781b7701fd55491ed8350841be850a9778298
inline constexpr char kCodecKernelsPtx[] = R"ptx(
.version 6.0
.target sm_60
.address_size 64
	.global .align 4 .f32 _ZN49_GLOBAL__N__00000000_16_codec_kernels_cu_299125704Int811kReciprocalE = 0f3C010204;
.global .align 4 .u32 _ZN49_GLOBAL__N__00000000_16_codec_kernels_cu_299125704Int85kBitsE = 8;
.global .align 4 .f32 _ZN49_GLOBAL__N__00000000_16_codec_kernels_cu_299125704Int411kReciprocalE = 0f3E124925;
.global .align 4 .u32 _ZN49_GLOBAL__N__00000000_16_codec_kernels_cu_299125704Int45kBitsE = 4;
.global .align 4 .f32 _ZN49_GLOBAL__N__00000000_16_codec_kernels_cu_299125706Float811kReciprocalE = 0f3B124925;
.global .align 4 .u32 _ZN49_GLOBAL__N__00000000_16_codec_kernels_cu_299125706Float85kBitsE = 8;
.visible .entry EncodeInt8(
	.param .u64 EncodeInt8_param_0,
	.param .u64 EncodeInt8_param_1,
	.param .u32 EncodeInt8_param_2,
	.param .u32 EncodeInt8_param_3,
	.param .u32 EncodeInt8_param_4,
	.param .u32 EncodeInt8_param_5,
	.param .u64 EncodeInt8_param_6,
	.param .u64 EncodeInt8_param_7
)
{
	.local .align 4 .b8 	__local_depot0[8];
	.reg .b64 	%SP;
	.reg .b64 	%SPL;
	.reg .pred 	%p<27>;
	.reg .f32 	%f<27>;
	.reg .b32 	%r<70>;
	.reg .b64 	%rd<65>;
	mov.u64 	%SPL, __local_depot0;
	ld.param.u64 	%rd33, [EncodeInt8_param_0];
	ld.param.u64 	%rd31, [EncodeInt8_param_1];
	ld.param.u32 	%r11, [EncodeInt8_param_2];
	ld.param.u32 	%r12, [EncodeInt8_param_3];
	ld.param.u32 	%r13, [EncodeInt8_param_4];
	ld.param.u32 	%r14, [EncodeInt8_param_5];
	ld.param.u64 	%rd32, [EncodeInt8_param_6];
	ld.param.u64 	%rd34, [EncodeInt8_param_7];
	cvta.to.global.u64 	%rd1, %rd33;
	cvta.to.global.u64 	%rd2, %rd34;
	add.u64 	%rd3, %SPL, 0;
	st.local.u32 	[%rd3], %r13;
	st.local.u32 	[%rd3+4], %r14;
	mov.u32 	%r15, %ctaid.x;
	mov.u32 	%r16, %ntid.x;
	cvt.u64.u32 	%rd4, %r16;
	mul.wide.u32 	%rd36, %r15, %r16;
	mov.u32 	%r17, %tid.x;
	cvt.u64.u32 	%rd37, %r17;
	add.s64 	%rd38, %rd36, %rd37;
	shr.u64 	%rd60, %rd38, 5;
	and.b32  	%r1, %r17, 31;
	cvt.u64.u32 	%rd6, %r11;
	mul.lo.s64 	%rd59, %rd60, %rd6;
	setp.ge.u64 	%p1, %rd59, %rd31;
	@%p1 bra 	$L__BB0_25;
	and.b32  	%r18, %r11, 536870911;
	add.s32 	%r19, %r18, 2;
	cvt.u64.u32 	%rd8, %r1;
	cvt.u64.u32 	%rd9, %r19;
	shl.b32 	%r2, %r1, 3;
	mov.u32 	%r20, %nctaid.x;
	cvt.u64.u32 	%rd39, %r20;
	mul.lo.s64 	%rd40, %rd39, %rd4;
	shr.u64 	%rd10, %rd40, 5;
	setp.eq.s32 	%p2, %r12, 0;
	selp.b64 	%rd11, 0, %rd3, %p2;
$L__BB0_2:
	.pragma "nounroll";
	sub.s64 	%rd41, %rd31, %rd59;
	min.u64 	%rd14, %rd41, %rd6;
	setp.le.u64 	%p3, %rd14, %rd8;
	mov.u32 	%r68, 0;
	@%p3 bra 	$L__BB0_5;
	add.s64 	%rd42, %rd8, %rd59;
	shl.b64 	%rd43, %rd42, 2;
	add.s64 	%rd61, %rd1, %rd43;
	mov.u32 	%r68, 0;
	mov.u64 	%rd62, %rd8;
$L__BB0_4:
	.pragma "nounroll";
	ld.global.u32 	%r23, [%rd61];
	and.b32  	%r24, %r23, 2147483647;
	max.u32 	%r68, %r68, %r24;
	add.s64 	%rd61, %rd61, 128;
	add.s64 	%rd62, %rd62, 32;
	setp.lt.u64 	%p4, %rd62, %rd14;
	@%p4 bra 	$L__BB0_4;
$L__BB0_5:
	mov.u32 	%r26, 31;
	mov.u32 	%r27, 16;
	mov.u32 	%r28, -1;
	shfl.sync.bfly.b32 	%r29|%p5, %r68, %r27, %r26, %r28;
	max.u32 	%r30, %r68, %r29;
	mov.u32 	%r31, 8;
	shfl.sync.bfly.b32 	%r32|%p6, %r30, %r31, %r26, %r28;
	max.u32 	%r33, %r30, %r32;
	mov.u32 	%r34, 4;
	shfl.sync.bfly.b32 	%r35|%p7, %r33, %r34, %r26, %r28;
	max.u32 	%r36, %r33, %r35;
	mov.u32 	%r37, 2;
	shfl.sync.bfly.b32 	%r38|%p8, %r36, %r37, %r26, %r28;
	max.u32 	%r39, %r36, %r38;
	mov.u32 	%r40, 1;
	shfl.sync.bfly.b32 	%r41|%p9, %r39, %r40, %r26, %r28;
	max.u32 	%r6, %r39, %r41;
	setp.gt.u32 	%p10, %r6, 2139095039;
	mov.u32 	%r69, 32704;
	mov.f32 	%f24, 0f00000000;
	@%p10 bra 	$L__BB0_8;
	setp.eq.s32 	%p11, %r6, 0;
	mov.u32 	%r69, 0;
	@%p11 bra 	$L__BB0_8;
	mov.b32 	%f9, %r6;
	mov.f32 	%f10, 0f3C010204;
	mul.rn.f32 	%f11, %f9, %f10;
	mov.f32 	%f12, 0f00800000;
	max.f32 	%f13, %f11, %f12;
	mov.b32 	%r43, %f13;
	add.s32 	%r44, %r43, 65535;
	shr.u32 	%r69, %r44, 16;
	and.b32  	%r45, %r44, -65536;
	mov.b32 	%f14, %r45;
	rcp.rn.f32 	%f24, %f14;
$L__BB0_8:
	mul.lo.s64 	%rd20, %rd60, %rd9;
	setp.gt.u32 	%p12, %r1, 1;
	@%p12 bra 	$L__BB0_10;
	shr.u32 	%r46, %r69, %r2;
	add.s64 	%rd44, %rd20, %rd8;
	add.s64 	%rd45, %rd2, %rd44;
	st.global.u8 	[%rd45], %r46;
$L__BB0_10:
	setp.eq.s64 	%p13, %rd14, 0;
	@%p13 bra 	$L__BB0_24;
	add.s64 	%rd21, %rd20, 2;
	@%p2 bra 	$L__BB0_18;
	ld.local.u32 	%r9, [%rd11];
	mov.u64 	%rd63, 0;
	ld.local.u32 	%r10, [%rd11+4];
	add.s64 	%rd22, %rd59, %rd32;
$L__BB0_13:
	.pragma "nounroll";
	add.s64 	%rd24, %rd63, %rd8;
	setp.ge.u64 	%p15, %rd24, %rd14;
	setp.eq.f32 	%p16, %f24, 0f00000000;
	mov.f32 	%f25, 0f00000000;
	or.pred  	%p17, %p16, %p15;
	@%p17 bra 	$L__BB0_15;
	add.s64 	%rd47, %rd24, %rd59;
	shl.b64 	%rd48, %rd47, 2;
	add.s64 	%rd49, %rd1, %rd48;
	ld.global.f32 	%f16, [%rd49];
	mul.rn.f32 	%f25, %f16, %f24;
$L__BB0_15:
	@%p15 bra 	$L__BB0_17;
	add.s64 	%rd50, %rd22, %rd24;
	cvt.u32.u64 	%r47, %rd50;
	add.s32 	%r48, %r9, %r47;
	shr.u32 	%r49, %r48, 16;
	xor.b32  	%r50, %r49, %r48;
	mul.lo.s32 	%r51, %r50, -2048144789;
	shr.u32 	%r52, %r51, 13;
	xor.b32  	%r53, %r52, %r51;
	add.s32 	%r54, %r53, %r10;
	mul.lo.s32 	%r55, %r54, -1028477387;
	cvt.rmi.f32.f32 	%f17, %f25;
	sub.rn.f32 	%f18, %f25, %f17;
	shr.u32 	%r56, %r55, 16;
	xor.b32  	%r57, %r56, %r55;
	shr.u32 	%r58, %r57, 8;
	cvt.rn.f32.s32 	%f19, %r58;
	mul.rn.f32 	%f20, %f19, 0f33800000;
	setp.gt.f32 	%p19, %f18, %f20;
	selp.u32 	%r59, 1, 0, %p19;
	cvt.rzi.s32.f32 	%r60, %f17;
	add.s32 	%r61, %r60, %r59;
	min.s32 	%r62, %r61, 127;
	max.s32 	%r63, %r62, -127;
	add.s64 	%rd51, %rd21, %rd24;
	add.s64 	%rd52, %rd2, %rd51;
	st.global.u8 	[%rd52], %r63;
$L__BB0_17:
	add.s64 	%rd63, %rd63, 32;
	setp.lt.u64 	%p20, %rd63, %rd14;
	@%p20 bra 	$L__BB0_13;
	bra.uni 	$L__BB0_24;
$L__BB0_18:
	mov.u64 	%rd64, 0;
$L__BB0_19:
	.pragma "nounroll";
	add.s64 	%rd27, %rd64, %rd8;
	setp.ge.u64 	%p21, %rd27, %rd14;
	setp.eq.f32 	%p22, %f24, 0f00000000;
	mov.f32 	%f26, 0f00000000;
	or.pred  	%p23, %p22, %p21;
	@%p23 bra 	$L__BB0_21;
	add.s64 	%rd54, %rd27, %rd59;
	shl.b64 	%rd55, %rd54, 2;
	add.s64 	%rd56, %rd1, %rd55;
	ld.global.f32 	%f22, [%rd56];
	mul.rn.f32 	%f26, %f22, %f24;
$L__BB0_21:
	@%p21 bra 	$L__BB0_23;
	cvt.rni.s32.f32 	%r64, %f26;
	min.s32 	%r65, %r64, 127;
	max.s32 	%r66, %r65, -127;
	add.s64 	%rd57, %rd21, %rd27;
	add.s64 	%rd58, %rd2, %rd57;
	st.global.u8 	[%rd58], %r66;
$L__BB0_23:
	add.s64 	%rd64, %rd64, 32;
	setp.lt.u64 	%p25, %rd64, %rd14;
	@%p25 bra 	$L__BB0_19;
$L__BB0_24:
	add.s64 	%rd60, %rd60, %rd10;
	mul.lo.s64 	%rd59, %rd60, %rd6;
	setp.lt.u64 	%p26, %rd59, %rd31;
	@%p26 bra 	$L__BB0_2;
$L__BB0_25:
	ret;
}
	.visible .entry EncodeInt4(
	.param .u64 EncodeInt4_param_0,
	.param .u64 EncodeInt4_param_1,
	.param .u32 EncodeInt4_param_2,
	.param .u32 EncodeInt4_param_3,
	.param .u32 EncodeInt4_param_4,
	.param .u32 EncodeInt4_param_5,
	.param .u64 EncodeInt4_param_6,
	.param .u64 EncodeInt4_param_7
)
{
	.local .align 4 .b8 	__local_depot1[8];
	.reg .b64 	%SP;
	.reg .b64 	%SPL;
	.reg .pred 	%p<24>;
	.reg .f32 	%f<22>;
	.reg .b32 	%r<74>;
	.reg .b64 	%rd<57>;
	mov.u64 	%SPL, __local_depot1;
	ld.param.u64 	%rd30, [EncodeInt4_param_0];
	ld.param.u64 	%rd28, [EncodeInt4_param_1];
	ld.param.u32 	%r10, [EncodeInt4_param_2];
	ld.param.u32 	%r11, [EncodeInt4_param_3];
	ld.param.u32 	%r12, [EncodeInt4_param_4];
	ld.param.u32 	%r13, [EncodeInt4_param_5];
	ld.param.u64 	%rd29, [EncodeInt4_param_6];
	ld.param.u64 	%rd31, [EncodeInt4_param_7];
	cvta.to.global.u64 	%rd1, %rd30;
	cvta.to.global.u64 	%rd2, %rd31;
	add.u64 	%rd3, %SPL, 0;
	st.local.u32 	[%rd3], %r12;
	st.local.u32 	[%rd3+4], %r13;
	mov.u32 	%r14, %ctaid.x;
	mov.u32 	%r15, %ntid.x;
	cvt.u64.u32 	%rd4, %r15;
	mul.wide.u32 	%rd33, %r14, %r15;
	mov.u32 	%r16, %tid.x;
	cvt.u64.u32 	%rd34, %r16;
	add.s64 	%rd35, %rd33, %rd34;
	shr.u64 	%rd53, %rd35, 5;
	and.b32  	%r1, %r16, 31;
	cvt.u64.u32 	%rd6, %r10;
	mul.lo.s64 	%rd52, %rd53, %rd6;
	setp.ge.u64 	%p1, %rd52, %rd28;
	@%p1 bra 	$L__BB1_18;
	bfe.u32 	%r17, %r10, 1, 29;
	add.s32 	%r18, %r17, 2;
	cvt.u64.u32 	%rd8, %r1;
	cvt.u64.u32 	%rd9, %r18;
	shl.b32 	%r2, %r1, 3;
	mov.u32 	%r19, %nctaid.x;
	cvt.u64.u32 	%rd36, %r19;
	mul.lo.s64 	%rd37, %rd36, %rd4;
	shr.u64 	%rd10, %rd37, 5;
	setp.eq.s32 	%p2, %r11, 0;
	selp.b64 	%rd11, 0, %rd3, %p2;
$L__BB1_2:
	.pragma "nounroll";
	sub.s64 	%rd38, %rd28, %rd52;
	min.u64 	%rd14, %rd38, %rd6;
	setp.le.u64 	%p3, %rd14, %rd8;
	mov.u32 	%r72, 0;
	@%p3 bra 	$L__BB1_5;
	add.s64 	%rd39, %rd8, %rd52;
	shl.b64 	%rd40, %rd39, 2;
	add.s64 	%rd54, %rd1, %rd40;
	mov.u32 	%r72, 0;
	mov.u64 	%rd55, %rd8;
$L__BB1_4:
	.pragma "nounroll";
	ld.global.u32 	%r22, [%rd54];
	and.b32  	%r23, %r22, 2147483647;
	max.u32 	%r72, %r72, %r23;
	add.s64 	%rd54, %rd54, 128;
	add.s64 	%rd55, %rd55, 32;
	setp.lt.u64 	%p4, %rd55, %rd14;
	@%p4 bra 	$L__BB1_4;
$L__BB1_5:
	mov.u32 	%r25, 31;
	mov.u32 	%r26, 16;
	mov.u32 	%r27, -1;
	shfl.sync.bfly.b32 	%r28|%p5, %r72, %r26, %r25, %r27;
	max.u32 	%r29, %r72, %r28;
	mov.u32 	%r30, 8;
	shfl.sync.bfly.b32 	%r31|%p6, %r29, %r30, %r25, %r27;
	max.u32 	%r32, %r29, %r31;
	mov.u32 	%r33, 4;
	shfl.sync.bfly.b32 	%r34|%p7, %r32, %r33, %r25, %r27;
	max.u32 	%r35, %r32, %r34;
	mov.u32 	%r36, 2;
	shfl.sync.bfly.b32 	%r37|%p8, %r35, %r36, %r25, %r27;
	max.u32 	%r38, %r35, %r37;
	mov.u32 	%r39, 1;
	shfl.sync.bfly.b32 	%r40|%p9, %r38, %r39, %r25, %r27;
	max.u32 	%r6, %r38, %r40;
	setp.gt.u32 	%p10, %r6, 2139095039;
	mov.u32 	%r73, 32704;
	mov.f32 	%f20, 0f00000000;
	@%p10 bra 	$L__BB1_8;
	setp.eq.s32 	%p11, %r6, 0;
	mov.u32 	%r73, 0;
	@%p11 bra 	$L__BB1_8;
	mov.b32 	%f7, %r6;
	mov.f32 	%f8, 0f3E124925;
	mul.rn.f32 	%f9, %f7, %f8;
	mov.f32 	%f10, 0f00800000;
	max.f32 	%f11, %f9, %f10;
	mov.b32 	%r42, %f11;
	add.s32 	%r43, %r42, 65535;
	shr.u32 	%r73, %r43, 16;
	and.b32  	%r44, %r43, -65536;
	mov.b32 	%f12, %r44;
	rcp.rn.f32 	%f20, %f12;
$L__BB1_8:
	mul.lo.s64 	%rd20, %rd53, %rd9;
	setp.gt.u32 	%p12, %r1, 1;
	@%p12 bra 	$L__BB1_10;
	shr.u32 	%r45, %r73, %r2;
	add.s64 	%rd41, %rd20, %rd8;
	add.s64 	%rd42, %rd2, %rd41;
	st.global.u8 	[%rd42], %r45;
$L__BB1_10:
	setp.eq.s64 	%p13, %rd14, 0;
	@%p13 bra 	$L__BB1_17;
	add.s64 	%rd21, %rd52, %rd29;
	add.s64 	%rd22, %rd20, 2;
	mov.u64 	%rd56, 0;
$L__BB1_12:
	.pragma "nounroll";
	add.s64 	%rd24, %rd56, %rd8;
	setp.ge.u64 	%p14, %rd24, %rd14;
	setp.eq.f32 	%p15, %f20, 0f00000000;
	mov.f32 	%f21, 0f00000000;
	or.pred  	%p16, %p15, %p14;
	@%p16 bra 	$L__BB1_14;
	add.s64 	%rd44, %rd24, %rd52;
	shl.b64 	%rd45, %rd44, 2;
	add.s64 	%rd46, %rd1, %rd45;
	ld.global.f32 	%f14, [%rd46];
	mul.rn.f32 	%f21, %f14, %f20;
$L__BB1_14:
	add.s64 	%rd47, %rd21, %rd24;
	cvt.u32.u64 	%r46, %rd47;
	ld.local.u32 	%r47, [%rd11];
	add.s32 	%r48, %r47, %r46;
	shr.u32 	%r49, %r48, 16;
	xor.b32  	%r50, %r49, %r48;
	mul.lo.s32 	%r51, %r50, -2048144789;
	shr.u32 	%r52, %r51, 13;
	xor.b32  	%r53, %r52, %r51;
	ld.local.u32 	%r54, [%rd11+4];
	add.s32 	%r55, %r53, %r54;
	mul.lo.s32 	%r56, %r55, -1028477387;
	shr.u32 	%r57, %r56, 16;
	xor.b32  	%r58, %r57, %r56;
	shr.u32 	%r59, %r58, 8;
	cvt.rn.f32.s32 	%f15, %r59;
	mul.rn.f32 	%f16, %f15, 0f33800000;
	cvt.rmi.f32.f32 	%f17, %f21;
	cvt.rzi.s32.f32 	%r60, %f17;
	sub.rn.f32 	%f18, %f21, %f17;
	mov.u32 	%r61, 1;
	setp.gt.f32 	%p17, %f18, %f16;
	selp.u32 	%r62, 1, 0, %p17;
	add.s32 	%r63, %r60, %r62;
	min.s32 	%r64, %r63, 7;
	max.s32 	%r65, %r64, -7;
	add.s32 	%r66, %r65, 8;
	mov.u32 	%r67, 31;
	mov.u32 	%r68, -1;
	shfl.sync.down.b32 	%r69|%p18, %r66, %r61, %r67, %r68;
	shl.b32 	%r70, %r69, 4;
	or.b32  	%r9, %r66, %r70;
	and.b64  	%rd48, %rd24, 1;
	setp.eq.b64 	%p19, %rd48, 1;
	or.pred  	%p21, %p14, %p19;
	@%p21 bra 	$L__BB1_16;
	shr.u64 	%rd49, %rd24, 1;
	add.s64 	%rd50, %rd22, %rd49;
	add.s64 	%rd51, %rd2, %rd50;
	st.global.u8 	[%rd51], %r9;
$L__BB1_16:
	add.s64 	%rd56, %rd56, 32;
	setp.lt.u64 	%p22, %rd56, %rd14;
	@%p22 bra 	$L__BB1_12;
$L__BB1_17:
	add.s64 	%rd53, %rd53, %rd10;
	mul.lo.s64 	%rd52, %rd53, %rd6;
	setp.lt.u64 	%p23, %rd52, %rd28;
	@%p23 bra 	$L__BB1_2;
$L__BB1_18:
	ret;
}
	.visible .entry EncodeFloat8(
	.param .u64 EncodeFloat8_param_0,
	.param .u64 EncodeFloat8_param_1,
	.param .u32 EncodeFloat8_param_2,
	.param .u32 EncodeFloat8_param_3,
	.param .u32 EncodeFloat8_param_4,
	.param .u32 EncodeFloat8_param_5,
	.param .u64 EncodeFloat8_param_6,
	.param .u64 EncodeFloat8_param_7
)
{
	.reg .pred 	%p<20>;
	.reg .f32 	%f<21>;
	.reg .b32 	%r<59>;
	.reg .b64 	%rd<49>;
	ld.param.u64 	%rd26, [EncodeFloat8_param_0];
	ld.param.u64 	%rd25, [EncodeFloat8_param_1];
	ld.param.u32 	%r9, [EncodeFloat8_param_2];
	ld.param.u64 	%rd27, [EncodeFloat8_param_7];
	cvta.to.global.u64 	%rd1, %rd26;
	cvta.to.global.u64 	%rd2, %rd27;
	mov.u32 	%r10, %ctaid.x;
	mov.u32 	%r11, %ntid.x;
	cvt.u64.u32 	%rd3, %r11;
	mul.wide.u32 	%rd28, %r10, %r11;
	mov.u32 	%r12, %tid.x;
	cvt.u64.u32 	%rd29, %r12;
	add.s64 	%rd30, %rd28, %rd29;
	shr.u64 	%rd45, %rd30, 5;
	and.b32  	%r1, %r12, 31;
	cvt.u64.u32 	%rd5, %r9;
	mul.lo.s64 	%rd44, %rd45, %rd5;
	setp.ge.u64 	%p1, %rd44, %rd25;
	@%p1 bra 	$L__BB2_18;
	and.b32  	%r13, %r9, 536870911;
	add.s32 	%r14, %r13, 2;
	cvt.u64.u32 	%rd7, %r1;
	cvt.u64.u32 	%rd8, %r14;
	shl.b32 	%r2, %r1, 3;
	mov.u32 	%r15, %nctaid.x;
	cvt.u64.u32 	%rd31, %r15;
	mul.lo.s64 	%rd32, %rd31, %rd3;
	shr.u64 	%rd9, %rd32, 5;
$L__BB2_2:
	.pragma "nounroll";
	sub.s64 	%rd33, %rd25, %rd44;
	min.u64 	%rd12, %rd33, %rd5;
	setp.le.u64 	%p2, %rd12, %rd7;
	mov.u32 	%r57, 0;
	@%p2 bra 	$L__BB2_5;
	add.s64 	%rd34, %rd7, %rd44;
	shl.b64 	%rd35, %rd34, 2;
	add.s64 	%rd46, %rd1, %rd35;
	mov.u32 	%r57, 0;
	mov.u64 	%rd47, %rd7;
$L__BB2_4:
	.pragma "nounroll";
	ld.global.u32 	%r18, [%rd46];
	and.b32  	%r19, %r18, 2147483647;
	max.u32 	%r57, %r57, %r19;
	add.s64 	%rd46, %rd46, 128;
	add.s64 	%rd47, %rd47, 32;
	setp.lt.u64 	%p3, %rd47, %rd12;
	@%p3 bra 	$L__BB2_4;
$L__BB2_5:
	mov.u32 	%r21, 31;
	mov.u32 	%r22, 16;
	mov.u32 	%r23, -1;
	shfl.sync.bfly.b32 	%r24|%p4, %r57, %r22, %r21, %r23;
	max.u32 	%r25, %r57, %r24;
	mov.u32 	%r26, 8;
	shfl.sync.bfly.b32 	%r27|%p5, %r25, %r26, %r21, %r23;
	max.u32 	%r28, %r25, %r27;
	mov.u32 	%r29, 4;
	shfl.sync.bfly.b32 	%r30|%p6, %r28, %r29, %r21, %r23;
	max.u32 	%r31, %r28, %r30;
	mov.u32 	%r32, 2;
	shfl.sync.bfly.b32 	%r33|%p7, %r31, %r32, %r21, %r23;
	max.u32 	%r34, %r31, %r33;
	mov.u32 	%r35, 1;
	shfl.sync.bfly.b32 	%r36|%p8, %r34, %r35, %r21, %r23;
	max.u32 	%r6, %r34, %r36;
	setp.gt.u32 	%p9, %r6, 2139095039;
	mov.u32 	%r58, 32704;
	mov.f32 	%f19, 0f00000000;
	@%p9 bra 	$L__BB2_8;
	setp.eq.s32 	%p10, %r6, 0;
	mov.u32 	%r58, 0;
	@%p10 bra 	$L__BB2_8;
	mov.b32 	%f7, %r6;
	mov.f32 	%f8, 0f3B124925;
	mul.rn.f32 	%f9, %f7, %f8;
	mov.f32 	%f10, 0f00800000;
	max.f32 	%f11, %f9, %f10;
	mov.b32 	%r38, %f11;
	add.s32 	%r39, %r38, 65535;
	shr.u32 	%r58, %r39, 16;
	and.b32  	%r40, %r39, -65536;
	mov.b32 	%f12, %r40;
	rcp.rn.f32 	%f19, %f12;
$L__BB2_8:
	mul.lo.s64 	%rd18, %rd45, %rd8;
	setp.gt.u32 	%p11, %r1, 1;
	@%p11 bra 	$L__BB2_10;
	shr.u32 	%r41, %r58, %r2;
	add.s64 	%rd36, %rd18, %rd7;
	add.s64 	%rd37, %rd2, %rd36;
	st.global.u8 	[%rd37], %r41;
$L__BB2_10:
	setp.eq.s64 	%p12, %rd12, 0;
	@%p12 bra 	$L__BB2_17;
	add.s64 	%rd19, %rd18, 2;
	mov.u64 	%rd48, 0;
$L__BB2_12:
	.pragma "nounroll";
	add.s64 	%rd21, %rd48, %rd7;
	setp.ge.u64 	%p13, %rd21, %rd12;
	setp.eq.f32 	%p14, %f19, 0f00000000;
	mov.f32 	%f20, 0f00000000;
	or.pred  	%p15, %p14, %p13;
	@%p15 bra 	$L__BB2_14;
	add.s64 	%rd39, %rd21, %rd44;
	shl.b64 	%rd40, %rd39, 2;
	add.s64 	%rd41, %rd1, %rd40;
	ld.global.f32 	%f14, [%rd41];
	mul.rn.f32 	%f20, %f14, %f19;
$L__BB2_14:
	@%p13 bra 	$L__BB2_16;
	mov.b32 	%r42, %f20;
	and.b32  	%r43, %r42, 2147483647;
	bfe.u32 	%r44, %r42, 20, 1;
	add.s32 	%r45, %r43, %r44;
	add.s32 	%r46, %r45, 524287;
	shr.u32 	%r47, %r46, 20;
	add.s32 	%r48, %r47, -960;
	mov.b32 	%f15, %r43;
	mov.f32 	%f16, 0f46800000;
	add.rn.f32 	%f17, %f15, %f16;
	mov.b32 	%r49, %f17;
	add.s32 	%r50, %r49, -1182793728;
	setp.lt.u32 	%p17, %r43, 1015021568;
	selp.b32 	%r51, %r50, %r48, %p17;
	shr.u32 	%r52, %r42, 24;
	and.b32  	%r53, %r52, 128;
	min.u32 	%r54, %r51, 126;
	or.b32  	%r55, %r54, %r53;
	add.s64 	%rd42, %rd19, %rd21;
	add.s64 	%rd43, %rd2, %rd42;
	st.global.u8 	[%rd43], %r55;
$L__BB2_16:
	add.s64 	%rd48, %rd48, 32;
	setp.lt.u64 	%p18, %rd48, %rd12;
	@%p18 bra 	$L__BB2_12;
$L__BB2_17:
	add.s64 	%rd45, %rd45, %rd9;
	mul.lo.s64 	%rd44, %rd45, %rd5;
	setp.lt.u64 	%p19, %rd44, %rd25;
	@%p19 bra 	$L__BB2_2;
$L__BB2_18:
	ret;
}
	.visible .entry DecodeInt8(
	.param .u64 DecodeInt8_param_0,
	.param .u64 DecodeInt8_param_1,
	.param .u32 DecodeInt8_param_2,
	.param .u64 DecodeInt8_param_3
)
{
	.reg .pred 	%p<6>;
	.reg .b16 	%rs<2>;
	.reg .f32 	%f<5>;
	.reg .b32 	%r<13>;
	.reg .b64 	%rd<43>;
	ld.param.u64 	%rd26, [DecodeInt8_param_0];
	ld.param.u64 	%rd24, [DecodeInt8_param_1];
	ld.param.u32 	%r2, [DecodeInt8_param_2];
	ld.param.u64 	%rd25, [DecodeInt8_param_3];
	cvta.to.global.u64 	%rd1, %rd26;
	mov.u32 	%r3, %ctaid.x;
	mov.u32 	%r4, %ntid.x;
	cvt.u64.u32 	%rd2, %r4;
	mul.wide.u32 	%rd27, %r3, %r4;
	mov.u32 	%r1, %tid.x;
	cvt.u64.u32 	%rd28, %r1;
	add.s64 	%rd29, %rd27, %rd28;
	shr.u64 	%rd39, %rd29, 5;
	cvt.u64.u32 	%rd4, %r2;
	mul.lo.s64 	%rd38, %rd39, %rd4;
	setp.ge.u64 	%p1, %rd38, %rd24;
	@%p1 bra 	$L__BB3_6;
	and.b32  	%r5, %r1, 31;
	and.b32  	%r6, %r2, 536870911;
	add.s32 	%r7, %r6, 2;
	cvt.u64.u32 	%rd6, %r7;
	cvt.u64.u32 	%rd7, %r5;
	add.s64 	%rd30, %rd1, %rd7;
	add.s64 	%rd8, %rd30, 2;
	mov.u32 	%r8, %nctaid.x;
	cvt.u64.u32 	%rd31, %r8;
	mul.lo.s64 	%rd32, %rd31, %rd2;
	shr.u64 	%rd9, %rd32, 5;
	cvta.to.global.u64 	%rd10, %rd25;
$L__BB3_2:
	.pragma "nounroll";
	sub.s64 	%rd33, %rd24, %rd38;
	min.u64 	%rd13, %rd33, %rd4;
	setp.le.u64 	%p2, %rd13, %rd7;
	@%p2 bra 	$L__BB3_5;
	mul.lo.s64 	%rd34, %rd39, %rd6;
	add.s64 	%rd35, %rd1, %rd34;
	ld.global.u8 	%r9, [%rd35];
	ld.global.u8 	%r10, [%rd35+1];
	add.s64 	%rd41, %rd8, %rd34;
	add.s64 	%rd36, %rd7, %rd38;
	shl.b64 	%rd37, %rd36, 2;
	add.s64 	%rd40, %rd10, %rd37;
	prmt.b32 	%r11, %r10, %r9, 8452;
	shl.b32 	%r12, %r11, 16;
	mov.b32 	%f1, %r12;
	mov.u64 	%rd42, %rd7;
$L__BB3_4:
	.pragma "nounroll";
	ld.global.s8 	%rs1, [%rd41];
	cvt.rn.f32.s16 	%f2, %rs1;
	mul.rn.f32 	%f3, %f2, %f1;
	setp.num.f32 	%p3, %f3, %f3;
	selp.f32 	%f4, %f3, 0f7FC00000, %p3;
	st.global.f32 	[%rd40], %f4;
	add.s64 	%rd41, %rd41, 32;
	add.s64 	%rd40, %rd40, 128;
	add.s64 	%rd42, %rd42, 32;
	setp.lt.u64 	%p4, %rd42, %rd13;
	@%p4 bra 	$L__BB3_4;
$L__BB3_5:
	add.s64 	%rd39, %rd39, %rd9;
	mul.lo.s64 	%rd38, %rd39, %rd4;
	setp.lt.u64 	%p5, %rd38, %rd24;
	@%p5 bra 	$L__BB3_2;
$L__BB3_6:
	ret;
}
	.visible .entry DecodeInt4(
	.param .u64 DecodeInt4_param_0,
	.param .u64 DecodeInt4_param_1,
	.param .u32 DecodeInt4_param_2,
	.param .u64 DecodeInt4_param_3
)
{
	.reg .pred 	%p<7>;
	.reg .f32 	%f<5>;
	.reg .b32 	%r<18>;
	.reg .b64 	%rd<45>;
	ld.param.u64 	%rd26, [DecodeInt4_param_0];
	ld.param.u64 	%rd24, [DecodeInt4_param_1];
	ld.param.u32 	%r2, [DecodeInt4_param_2];
	ld.param.u64 	%rd25, [DecodeInt4_param_3];
	cvta.to.global.u64 	%rd1, %rd26;
	mov.u32 	%r3, %ctaid.x;
	mov.u32 	%r4, %ntid.x;
	cvt.u64.u32 	%rd2, %r4;
	mul.wide.u32 	%rd27, %r3, %r4;
	mov.u32 	%r1, %tid.x;
	cvt.u64.u32 	%rd28, %r1;
	add.s64 	%rd29, %rd27, %rd28;
	shr.u64 	%rd41, %rd29, 5;
	cvt.u64.u32 	%rd4, %r2;
	mul.lo.s64 	%rd40, %rd41, %rd4;
	setp.ge.u64 	%p1, %rd40, %rd24;
	@%p1 bra 	$L__BB4_6;
	and.b32  	%r5, %r1, 31;
	bfe.u32 	%r6, %r2, 1, 29;
	add.s32 	%r7, %r6, 2;
	cvt.u64.u32 	%rd6, %r7;
	cvt.u64.u32 	%rd7, %r5;
	shr.u64 	%rd30, %rd7, 1;
	add.s64 	%rd31, %rd1, %rd30;
	add.s64 	%rd8, %rd31, 2;
	mov.u32 	%r8, %nctaid.x;
	cvt.u64.u32 	%rd32, %r8;
	mul.lo.s64 	%rd33, %rd32, %rd2;
	shr.u64 	%rd9, %rd33, 5;
	cvta.to.global.u64 	%rd10, %rd25;
$L__BB4_2:
	.pragma "nounroll";
	sub.s64 	%rd34, %rd24, %rd40;
	min.u64 	%rd13, %rd34, %rd4;
	setp.le.u64 	%p2, %rd13, %rd7;
	@%p2 bra 	$L__BB4_5;
	mul.lo.s64 	%rd35, %rd41, %rd6;
	add.s64 	%rd36, %rd1, %rd35;
	ld.global.u8 	%r9, [%rd36];
	ld.global.u8 	%r10, [%rd36+1];
	add.s64 	%rd43, %rd8, %rd35;
	add.s64 	%rd37, %rd7, %rd40;
	shl.b64 	%rd38, %rd37, 2;
	add.s64 	%rd42, %rd10, %rd38;
	prmt.b32 	%r11, %r10, %r9, 8452;
	shl.b32 	%r12, %r11, 16;
	mov.b32 	%f1, %r12;
	mov.u64 	%rd44, %rd7;
$L__BB4_4:
	.pragma "nounroll";
	ld.global.u8 	%r13, [%rd43];
	and.b64  	%rd39, %rd44, 1;
	setp.eq.b64 	%p3, %rd39, 1;
	and.b32  	%r14, %r13, 15;
	shr.u32 	%r15, %r13, 4;
	selp.b32 	%r16, %r15, %r14, %p3;
	add.s32 	%r17, %r16, -8;
	cvt.rn.f32.s32 	%f2, %r17;
	mul.rn.f32 	%f3, %f2, %f1;
	setp.num.f32 	%p4, %f3, %f3;
	selp.f32 	%f4, %f3, 0f7FC00000, %p4;
	st.global.f32 	[%rd42], %f4;
	add.s64 	%rd43, %rd43, 16;
	add.s64 	%rd42, %rd42, 128;
	add.s64 	%rd44, %rd44, 32;
	setp.lt.u64 	%p5, %rd44, %rd13;
	@%p5 bra 	$L__BB4_4;
$L__BB4_5:
	add.s64 	%rd41, %rd41, %rd9;
	mul.lo.s64 	%rd40, %rd41, %rd4;
	setp.lt.u64 	%p6, %rd40, %rd24;
	@%p6 bra 	$L__BB4_2;
$L__BB4_6:
	ret;
}
	.visible .entry DecodeFloat8(
	.param .u64 DecodeFloat8_param_0,
	.param .u64 DecodeFloat8_param_1,
	.param .u32 DecodeFloat8_param_2,
	.param .u64 DecodeFloat8_param_3
)
{
	.reg .pred 	%p<8>;
	.reg .b16 	%rs<4>;
	.reg .f32 	%f<12>;
	.reg .b32 	%r<15>;
	.reg .b64 	%rd<43>;
	ld.param.u64 	%rd26, [DecodeFloat8_param_0];
	ld.param.u64 	%rd24, [DecodeFloat8_param_1];
	ld.param.u32 	%r2, [DecodeFloat8_param_2];
	ld.param.u64 	%rd25, [DecodeFloat8_param_3];
	cvta.to.global.u64 	%rd1, %rd26;
	mov.u32 	%r3, %ctaid.x;
	mov.u32 	%r4, %ntid.x;
	cvt.u64.u32 	%rd2, %r4;
	mul.wide.u32 	%rd27, %r3, %r4;
	mov.u32 	%r1, %tid.x;
	cvt.u64.u32 	%rd28, %r1;
	add.s64 	%rd29, %rd27, %rd28;
	shr.u64 	%rd39, %rd29, 5;
	cvt.u64.u32 	%rd4, %r2;
	mul.lo.s64 	%rd38, %rd39, %rd4;
	setp.ge.u64 	%p1, %rd38, %rd24;
	@%p1 bra 	$L__BB5_8;
	and.b32  	%r5, %r1, 31;
	and.b32  	%r6, %r2, 536870911;
	add.s32 	%r7, %r6, 2;
	cvt.u64.u32 	%rd6, %r7;
	cvt.u64.u32 	%rd7, %r5;
	add.s64 	%rd30, %rd1, %rd7;
	add.s64 	%rd8, %rd30, 2;
	mov.u32 	%r8, %nctaid.x;
	cvt.u64.u32 	%rd31, %r8;
	mul.lo.s64 	%rd32, %rd31, %rd2;
	shr.u64 	%rd9, %rd32, 5;
	cvta.to.global.u64 	%rd10, %rd25;
$L__BB5_2:
	.pragma "nounroll";
	sub.s64 	%rd33, %rd24, %rd38;
	min.u64 	%rd13, %rd33, %rd4;
	setp.le.u64 	%p2, %rd13, %rd7;
	@%p2 bra 	$L__BB5_7;
	mul.lo.s64 	%rd34, %rd39, %rd6;
	add.s64 	%rd35, %rd1, %rd34;
	ld.global.u8 	%r9, [%rd35];
	ld.global.u8 	%r10, [%rd35+1];
	add.s64 	%rd41, %rd8, %rd34;
	add.s64 	%rd36, %rd7, %rd38;
	shl.b64 	%rd37, %rd36, 2;
	add.s64 	%rd40, %rd10, %rd37;
	prmt.b32 	%r11, %r10, %r9, 8452;
	shl.b32 	%r12, %r11, 16;
	mov.b32 	%f1, %r12;
	mov.u64 	%rd42, %rd7;
$L__BB5_4:
	.pragma "nounroll";
	ld.global.u8 	%rs3, [%rd41];
	cvt.s16.s8 	%rs1, %rs3;
	and.b16  	%rs2, %rs3, 127;
	setp.eq.s16 	%p3, %rs2, 127;
	mov.f32 	%f11, 0f7FC00000;
	@%p3 bra 	$L__BB5_6;
	cvt.u32.u16 	%r13, %rs2;
	shl.b32 	%r14, %r13, 20;
	mov.b32 	%f5, %r14;
	mov.f32 	%f6, 0f7B800000;
	mul.rn.f32 	%f7, %f5, %f6;
	neg.f32 	%f8, %f7;
	setp.gt.s16 	%p4, %rs1, -1;
	selp.f32 	%f11, %f7, %f8, %p4;
$L__BB5_6:
	mul.rn.f32 	%f9, %f11, %f1;
	setp.num.f32 	%p5, %f9, %f9;
	selp.f32 	%f10, %f9, 0f7FC00000, %p5;
	st.global.f32 	[%rd40], %f10;
	add.s64 	%rd41, %rd41, 32;
	add.s64 	%rd40, %rd40, 128;
	add.s64 	%rd42, %rd42, 32;
	setp.lt.u64 	%p6, %rd42, %rd13;
	@%p6 bra 	$L__BB5_4;
$L__BB5_7:
	add.s64 	%rd39, %rd39, %rd9;
	mul.lo.s64 	%rd38, %rd39, %rd4;
	setp.lt.u64 	%p7, %rd38, %rd24;
	@%p7 bra 	$L__BB5_2;
$L__BB5_8:
	ret;
}
)ptx";

}  // namespace byteps

#endif  // TF_BYTEPS_CC_GPU_CODEC_KERNELS_PTX_H_
